// Encodes and decodes the bytes of an entry file. docs/reference/cache.md has the format.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cache/cache.h"

namespace opdock::cache {

inline constexpr uint32_t kEntryFormat = 1;
inline constexpr size_t kEntryHeadBytes = 24;
inline constexpr size_t kEntryAlignment = 64;          // alignment of each blob, in bytes
inline constexpr uint64_t kMaxMetadata = 64ull << 20;  // bytes of JSON

// A file of a published folder.
struct EntryFile {
  std::string name;  // relative: "axpy.so", "log/build.log"
  uint64_t size = 0;
  std::string sha256;  // hex
};

// A blob's place in the entry file.
struct EntryBlob {
  std::string name;
  uint64_t offset = 0;
  uint64_t size = 0;
};

struct EntryData {
  std::string kind, key, subject;
  std::vector<CacheField> fields;
  CacheMaker maker;
  int64_t created = 0;
  std::vector<EntryBlob> blobs;
  std::vector<EntryFile> files;
};

// Returns the bytes of an entry with these blobs (data.blobs is ignored). Texts that JSON cannot
// hold (no UTF-8, a NUL) are stored as "sha256:" and their digest.
std::string encode_entry(const EntryData& data, const std::vector<CacheBlob>& blobs);

enum class EntryState {
  kGood,
  kDamaged,  // bytes that no Opdock has written
  kNewer,    // intact as far as this Opdock can read it, in the format of a later one
};

// Checks every byte, by the digest at the end, and reads the metadata. Unless it returns kGood,
// *problem says what was found.
EntryState decode_entry(std::span<const uint8_t> bytes, EntryData* data, std::string* problem);

// Returns whether a name stays inside its folder: relative, no empty, "." or ".." component, no
// NUL, at most 255 bytes.
bool is_inner_name(std::string_view name);

}  // namespace opdock::cache
