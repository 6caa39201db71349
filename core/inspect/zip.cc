// SPDX-License-Identifier: Apache-2.0
#include "inspect/zip.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/utf8.h"
#include "fmt/format.h"
#include "note/reader.h"

namespace opdock {
namespace {

constexpr uint32_t kEndMagic = 0x06054b50;
constexpr uint32_t kEnd64Magic = 0x06064b50;
constexpr uint32_t kLocator64Magic = 0x07064b50;
constexpr uint32_t kEntryMagic = 0x02014b50;
constexpr size_t kEndBytes = 22, kEnd64Bytes = 56, kLocator64Bytes = 20, kEntryBytes = 46;
constexpr size_t kMaxComment = 0xffff;

template <typename T>
T number(const uint8_t* bytes) {
  T value = 0;
  for (size_t i = sizeof(T); i-- > 0;) value = static_cast<T>(value << 8 | bytes[i]);
  return value;
}

// Returns where the record that ends the archive begins: the last one whose comment ends with the
// file.
std::optional<uint64_t> find_end(int fd, uint64_t size) {
  const size_t tail = static_cast<size_t>(std::min<uint64_t>(size, kEndBytes + kMaxComment));
  if (tail < kEndBytes) return std::nullopt;
  std::vector<uint8_t> bytes(tail);
  FileReader reader(fd, size);
  if (!reader.read_exactly(size - tail, bytes.data(), tail)) return std::nullopt;
  for (size_t at = tail - kEndBytes + 1; at-- > 0;) {
    if (number<uint32_t>(&bytes[at]) != kEndMagic) continue;
    if (at + kEndBytes + number<uint16_t>(&bytes[at + 20]) == tail) return size - tail + at;
  }
  return std::nullopt;
}

// Reads the 64-bit numbers that an entry has in place of 32-bit ones that are all ones.
bool read_zip64(std::string_view extra, uint32_t size, uint32_t packed, uint32_t header,
                ZipEntry* entry) {
  const bool wanted = size == UINT32_MAX || packed == UINT32_MAX || header == UINT32_MAX;
  while (extra.size() >= 4) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(extra.data());
    const uint16_t id = number<uint16_t>(bytes), length = number<uint16_t>(bytes + 2);
    if (extra.size() - 4 < length) break;
    if (id == 1) {
      size_t at = 4;
      const auto take = [&](uint32_t narrow, uint64_t* wide) {
        if (narrow != UINT32_MAX) return true;
        if (at + 8 > 4u + length) return false;
        *wide = number<uint64_t>(bytes + at);
        at += 8;
        return true;
      };
      return take(size, &entry->size) && take(packed, &entry->packed) &&
             take(header, &entry->header);
    }
    extra.remove_prefix(4u + length);
  }
  return !wanted;
}

}  // namespace

std::optional<Zip> Zip::open(int fd, uint64_t size, std::string* problem) {
  const std::optional<uint64_t> end = find_end(fd, size);
  if (!end) {
    *problem = "no end of a zip archive's directory";
    return std::nullopt;
  }
  FileReader reader(fd, size);
  uint8_t record[kEnd64Bytes];
  if (!reader.read_exactly(*end, record, kEndBytes)) {
    *problem = "a file that cannot be read to its end";
    return std::nullopt;
  }
  uint64_t count = number<uint16_t>(record + 10), length = number<uint32_t>(record + 12),
           offset = number<uint32_t>(record + 16);
  uint64_t limit = *end;  // the directory ends before it
  bool is_one_part = number<uint16_t>(record + 4) == 0 && number<uint16_t>(record + 6) == 0;
  if (*end >= kLocator64Bytes &&
      reader.read_exactly(*end - kLocator64Bytes, record, kLocator64Bytes) &&
      number<uint32_t>(record) == kLocator64Magic) {
    const uint64_t said = number<uint64_t>(record + 8);
    uint64_t at = said;
    const auto is_there = [&] {
      return at <= *end - kLocator64Bytes && *end - kLocator64Bytes - at >= kEnd64Bytes &&
             reader.read_exactly(at, record, kEnd64Bytes) &&
             number<uint32_t>(record) == kEnd64Magic;
    };
    // If other bytes precede the archive, the record is directly before its locator. It is then as
    // far after its stated offset as the directory is after its own, and the directory ends where
    // the record begins.
    const auto ends_at_offset = [&] {
      const uint64_t bytes = number<uint64_t>(record + 40), begin = number<uint64_t>(record + 48);
      return begin <= said && bytes == said - begin;
    };
    bool is_found = is_there();
    if (!is_found && *end - kLocator64Bytes >= kEnd64Bytes) {
      at = *end - kLocator64Bytes - kEnd64Bytes;
      is_found = said < at && is_there() && ends_at_offset();
    }
    if (!is_found) {
      *problem = fmt::format("no 64-bit directory record at {:#x}, where its locator says", said);
      return std::nullopt;
    }
    is_one_part = number<uint32_t>(record + 16) == 0 && number<uint32_t>(record + 20) == 0;
    count = number<uint64_t>(record + 32);
    length = number<uint64_t>(record + 40);
    offset = number<uint64_t>(record + 48);
    limit = at;
  }
  if (!is_one_part) {
    *problem = "one part of an archive in several";
  } else if (offset > limit || length > limit - offset) {
    *problem = fmt::format("a directory of {} bytes at {:#x}, beyond its own end", length, offset);
  } else if (count > kMaxZipEntries) {
    *problem = fmt::format("{} members, above the limit of {}", count, kMaxZipEntries);
  } else if (length > kMaxZipDirectoryBytes) {
    *problem = fmt::format("a directory of {} bytes, above the limit of {}", length,
                           kMaxZipDirectoryBytes);
  } else {
    return Zip(fd, limit - offset - length, limit - length, length, count);
  }
  return std::nullopt;
}

bool Zip::for_each(const std::function<bool(ZipEntry&& entry)>& take, std::string* problem) const {
  FileReader reader(fd_, directory_ + directory_size_);
  uint64_t at = directory_;
  std::string extra;
  for (uint64_t i = 0; i < count_; ++i) {
    uint8_t record[kEntryBytes];
    if (!reader.read(at, record, sizeof record) || number<uint32_t>(record) != kEntryMagic) {
      *problem = fmt::format("no entry {} of {} in the directory at {:#x}", i + 1, count_, at);
      return false;
    }
    ZipEntry entry;
    entry.position = i;
    const uint16_t made_by = number<uint16_t>(record + 4), flags = number<uint16_t>(record + 8);
    entry.method = number<uint16_t>(record + 10);
    entry.crc = number<uint32_t>(record + 16);
    const uint32_t packed = number<uint32_t>(record + 20), size = number<uint32_t>(record + 24);
    const uint16_t name_size = number<uint16_t>(record + 28),
                   extra_size = number<uint16_t>(record + 30),
                   comment_size = number<uint16_t>(record + 32);
    const uint32_t attributes = number<uint32_t>(record + 38);
    const uint32_t header = number<uint32_t>(record + 42);
    entry.packed = packed;
    entry.size = size;
    entry.header = header;
    entry.is_encrypted = (flags & 0x41) != 0;
    entry.name.resize(name_size);
    extra.resize(extra_size);
    at += sizeof record;
    if (!reader.read(at, entry.name.data(), name_size) ||
        !reader.read(at + name_size, extra.data(), extra_size)) {
      *problem = fmt::format("entry {} of {} beyond the directory's end", i + 1, count_);
      return false;
    }
    at += uint64_t{name_size} + extra_size + comment_size;
    if (!read_zip64(extra, size, packed, header, &entry)) {
      *problem = fmt::format("entry {} of {} without its 64-bit sizes", i + 1, count_);
      return false;
    }
    if (entry.header <= directory_) entry.header += begin_;
    const mode_t mode = made_by >> 8 == 3 ? attributes >> 16 : 0;  // 3: Unix
    entry.is_folder = entry.name.ends_with('/') || S_ISDIR(mode);
    entry.is_link = S_ISLNK(mode);
    entry.is_program = (mode & 0111) != 0;
    if (!take(std::move(entry))) return true;
  }
  if (at != directory_ + directory_size_) {
    *problem = "more bytes in the directory than its entries have";
    return false;
  }
  return true;
}

std::string unsafe_name(const std::string& name) {
  if (name.empty()) return "an empty name";
  if (name.size() >= PATH_MAX) return fmt::format("a name of {} bytes", name.size());
  if (name.find('\0') != name.npos) return "a name with a NUL";
  if (name.find('\\') != name.npos) return "a name with a backslash";
  if (!is_utf8(name)) return "a name that is not UTF-8";
  if (name.front() == '/') return "an absolute path";
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    if (std::string_view(name).substr(begin, end - begin) == "..") return "a path with \"..\"";
    begin = end + 1;
  }
  return "";
}

}  // namespace opdock
