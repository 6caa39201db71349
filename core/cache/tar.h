// The plain tar format, POSIX.1-1988 ustar without compression, for plain files alone.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace opdock::cache {

inline constexpr size_t kTarBlock = 512;
using TarBlock = std::array<char, kTarBlock>;

// Appends the file at `path` to the archive, as `name`, and its bytes there to *total. errno;
// ENAMETOOLONG where the name or the size does not fit.
int append_to_tar(int archive, const std::string& path, const std::string& name, uint64_t* total);
// What stands behind the last file.
std::string tar_end();

// What the head of a file in an archive says. The file's bytes follow, padded to a whole block.
struct TarFile {
  std::string name;
  uint64_t size = 0;
  bool is_executable = false;
};
enum class TarHead {
  kFile,
  kOther,   // no plain file; of *out the name is known
  kEnd,     // of the archive
  kNoHead,  // bytes that are no tar file's
};
TarHead read_tar_head(const TarBlock& block, TarFile* out);
// The bytes behind a file of that size.
size_t tar_padding(uint64_t size);

}  // namespace opdock::cache
