// Builds zip archives byte by byte, valid and damaged ones.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace opdock_test {

// One member of an archive. A field that is not 0 or empty by default replaces the correct value.
struct ZipMember {
  std::string name = {};
  std::string bytes = {};
  // whether it is in deflate's stored blocks, which are valid deflate and simple to write by hand
  bool deflated = false;
  uint16_t flags = 0;
  int method = -1;
  uint32_t mode = 0100644;      // Unix file mode
  std::string local_name = {};  // its name in its own (local) header
  // extra bytes after the packed ones; they count as part of the packed data
  std::string behind = {};
  int64_t size = -1;  // uncompressed size in both headers
  int64_t crc = -1;
  int64_t header = -1;  // offset of its local header that the directory states
  bool zip64 = false;   // whether its numbers are in a zip64 extra field
};

inline void put(std::string* out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out->push_back(static_cast<char>(value >> (8 * i)));
}

// Computes the CRC-32 bit by bit, directly from the definition.
inline uint32_t crc_of(const std::string& bytes) {
  uint32_t crc = 0xffffffff;
  for (const char byte : bytes) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (0xedb88320 & (0 - (crc & 1)));
  }
  return ~crc;
}

inline std::string deflated(const std::string& bytes) {
  std::string out;
  for (size_t begin = 0; begin == 0 || begin < bytes.size(); begin += 65535) {
    const std::string block = bytes.substr(begin, 65535);
    out.push_back(begin + 65535 >= bytes.size() ? 1 : 0);
    put(&out, block.size(), 2);
    put(&out, ~block.size(), 2);
    out += block;
  }
  return out;
}

struct ZipOptions {
  std::string comment = {};
  std::string before = {};  // bytes before the directory that belong to no member
  int64_t count = -1;       // number of members that the end record states
  int64_t directory = -1;   // offset of the directory that the end record states
  bool zip64 = false;       // writes a 64-bit end record and nothing usable in the ordinary one
};

inline std::string zip_of(const std::vector<ZipMember>& members, const ZipOptions& options = {}) {
  std::string out, directory;
  for (const ZipMember& member : members) {
    const std::string packed =
        (member.deflated ? deflated(member.bytes) : member.bytes) + member.behind;
    const uint64_t header = member.header >= 0 ? static_cast<uint64_t>(member.header) : out.size();
    const uint64_t method = member.method >= 0 ? static_cast<uint64_t>(member.method)
                            : member.deflated  ? 8
                                               : 0;
    const uint64_t crc = member.crc >= 0 ? static_cast<uint64_t>(member.crc) : crc_of(member.bytes);
    const uint64_t size =
        member.size >= 0 ? static_cast<uint64_t>(member.size) : member.bytes.size();
    const std::string& local = member.local_name.empty() ? member.name : member.local_name;
    const auto add_common = [&](std::string* to, uint64_t packed_size, uint64_t whole_size) {
      put(to, 20, 2), put(to, member.flags, 2), put(to, method, 2), put(to, 0, 4);
      put(to, crc, 4), put(to, packed_size, 4), put(to, whole_size, 4);
    };
    put(&out, 0x04034b50, 4);
    add_common(&out, packed.size(), size);
    put(&out, local.size(), 2), put(&out, 0, 2);
    out += local + packed;
    std::string extra;
    if (member.zip64) {
      put(&extra, 1, 2), put(&extra, 24, 2);
      put(&extra, size, 8), put(&extra, packed.size(), 8), put(&extra, header, 8);
    }
    put(&directory, 0x02014b50, 4), put(&directory, 3 << 8 | 20, 2);
    add_common(&directory, member.zip64 ? UINT32_MAX : packed.size(),
               member.zip64 ? UINT32_MAX : size);
    put(&directory, member.name.size(), 2), put(&directory, extra.size(), 2);
    put(&directory, 0, 2), put(&directory, 0, 2), put(&directory, 0, 2);
    put(&directory, uint64_t{member.mode} << 16, 4);
    put(&directory, member.zip64 ? UINT32_MAX : header, 4);
    directory += member.name + extra;
  }
  out += options.before;
  const uint64_t count = options.count >= 0 ? static_cast<uint64_t>(options.count) : members.size();
  const uint64_t at =
      options.directory >= 0 ? static_cast<uint64_t>(options.directory) : out.size();
  const size_t end64 = out.size() + directory.size();
  out += directory;
  if (options.zip64) {
    put(&out, 0x06064b50, 4), put(&out, 44, 8), put(&out, 45, 2), put(&out, 45, 2);
    put(&out, 0, 4), put(&out, 0, 4), put(&out, count, 8), put(&out, count, 8);
    put(&out, directory.size(), 8), put(&out, at, 8);
    put(&out, 0x07064b50, 4), put(&out, 0, 4), put(&out, end64, 8), put(&out, 1, 4);
  }
  put(&out, 0x06054b50, 4), put(&out, 0, 2), put(&out, 0, 2);
  for (int i = 0; i < 2; ++i) put(&out, options.zip64 ? 0xffff : count, 2);
  put(&out, options.zip64 ? UINT32_MAX : directory.size(), 4);
  put(&out, options.zip64 ? UINT32_MAX : at, 4);
  put(&out, options.comment.size(), 2);
  return out + options.comment;
}

}  // namespace opdock_test
