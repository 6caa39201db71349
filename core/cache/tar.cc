// SPDX-License-Identifier: Apache-2.0
#include "cache/tar.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "fmt/format.h"

namespace opdock::cache {
namespace {

// The header of a file, as a block holds it.
struct Header {
  char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, link[100];
  char magic[6], version[2], user[32], group[32], major[8], minor[8], prefix[155], pad[12];
};
static_assert(sizeof(Header) == kTarBlock);

unsigned checksum(Header header) {
  std::memset(header.checksum, ' ', sizeof header.checksum);
  unsigned sum = 0;
  std::array<uint8_t, kTarBlock> bytes{};
  std::memcpy(bytes.data(), &header, kTarBlock);
  for (const uint8_t byte : bytes) sum += byte;
  return sum;
}

void put(char* field, size_t size, std::string_view text) {
  std::memcpy(field, text.data(), std::min(size, text.size()));
}

// Makes the header. A long name is split at a slash and goes into two fields. Returns false if the
// name or the size does not fit.
bool make_header(const std::string& name, uint64_t size, bool is_executable, Header* header) {
  *header = {};
  size_t split = 0;
  if (name.size() > sizeof header->name) {
    split = name.find('/', name.size() - sizeof header->name - 1);
    if (split == std::string::npos || split > sizeof header->prefix) return false;
    put(header->prefix, sizeof header->prefix, name.substr(0, split));
    ++split;
  }
  if (size >= uint64_t{1} << 33) return false;
  put(header->name, sizeof header->name, name.substr(split));
  put(header->mode, 8, is_executable ? "0000755" : "0000644");
  put(header->uid, 8, "0000000");
  put(header->gid, 8, "0000000");
  put(header->size, 12, fmt::format("{:011o}", size));
  put(header->mtime, 12, "00000000000");
  header->type = '0';
  std::memcpy(header->magic,
              "ustar\0"
              "00",
              8);
  put(header->checksum, 8, fmt::format("{:06o}", checksum(*header)));
  return true;
}

std::string_view field_text(const char* field, size_t size) {
  return {field, strnlen(field, size)};
}

bool read_octal(const char* field, size_t size, uint64_t* value) {
  *value = 0;
  for (const char c : field_text(field, size)) {
    if (c == ' ') continue;
    if (c < '0' || c > '7') return false;
    *value = *value * 8 + static_cast<uint64_t>(c - '0');
  }
  return true;
}

}  // namespace

int append_to_tar(int archive, const std::string& path, const std::string& name, uint64_t* total) {
  Fd file;
  if (const int error = open_file(path, O_RDONLY, 0, &file)) return error;
  struct stat status{};
  if (fstat(file.get(), &status) != 0) return errno;
  const uint64_t size = static_cast<uint64_t>(status.st_size);
  Header header;
  if (!make_header(name, size, (status.st_mode & S_IXUSR) != 0, &header)) return ENAMETOOLONG;
  if (const int error = write_all(archive, {reinterpret_cast<const char*>(&header), kTarBlock})) {
    return error;
  }
  std::vector<char> buffer(256 << 10);
  uint64_t left = size;
  while (left > 0) {
    const ssize_t got = read(file.get(), buffer.data(), std::min<uint64_t>(left, buffer.size()));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got < 0 ? errno : EIO;
    if (const int error = write_all(archive, {buffer.data(), static_cast<size_t>(got)}))
      return error;
    left -= static_cast<uint64_t>(got);
  }
  const std::string padding(tar_padding(size), '\0');
  *total += kTarBlock + size + padding.size();
  return write_all(archive, padding);
}

std::string tar_end() {
  return std::string(2 * kTarBlock, '\0');
}

TarHead read_tar_head(const TarBlock& block, TarFile* out) {
  Header header;
  std::memcpy(&header, block.data(), sizeof header);
  if (header.name[0] == '\0') return TarHead::kEnd;
  uint64_t sum = 0, mode = 0;
  if (std::memcmp(header.magic, "ustar", 5) != 0 || !read_octal(header.checksum, 8, &sum) ||
      sum != checksum(header)) {
    return TarHead::kNoHead;
  }
  out->name = field_text(header.prefix, sizeof header.prefix);
  if (!out->name.empty()) out->name += '/';
  out->name += field_text(header.name, sizeof header.name);
  if ((header.type != '0' && header.type != '\0') || !read_octal(header.size, 12, &out->size) ||
      !read_octal(header.mode, 8, &mode)) {
    return TarHead::kOther;
  }
  out->is_executable = (mode & 0100) != 0;
  return TarHead::kFile;
}

size_t tar_padding(uint64_t size) {
  return static_cast<size_t>((kTarBlock - size % kTarBlock) % kTarBlock);
}

}  // namespace opdock::cache
