// Reads untrusted zip archives in place: the directory, and one member at a time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace opdock {

struct ZipEntry {
  std::string name;       // as stored; may be anything: unsafe_name() checks it
  uint64_t position = 0;  // in the directory, from 0
  uint64_t header = 0;    // where its local header is in the file
  uint64_t packed = 0;    // bytes in the file
  uint64_t size = 0;      // bytes when unpacked, by the directory
  uint32_t crc = 0;
  uint16_t method = 0;  // 0: stored, 8: deflated
  bool is_encrypted = false;
  bool is_folder = false;
  bool is_link = false;     // a symbolic link, by the mode that Unix tools store
  bool is_program = false;  // somebody may execute it, by the same mode
};

// Limits of what is read. A wheel of ten gigabytes has some ten thousand members.
inline constexpr uint64_t kMaxZipEntries = 1'000'000;
inline constexpr uint64_t kMaxZipDirectoryBytes = uint64_t{256} << 20;
inline constexpr uint64_t kMaxMemberBytes = uint64_t{16} << 30;
// Above kFreeMemberBytes no member may be larger than kMaxRatio times its packed size: libraries
// reach a ratio of 20, and deflate can reach 1032.
inline constexpr uint64_t kFreeMemberBytes = uint64_t{64} << 20;
inline constexpr uint64_t kMaxRatio = 200;

// Reads `fd`, a regular file of `size` bytes, which the caller keeps open. Other bytes may precede
// the archive, such as a program that unpacks it; the archive's offsets then count from their end.
// Thread-safe.
class Zip {
 public:
  // Finds the directory. Returns nullopt and sets *problem ("found …, wanted …" without the words)
  // if this is not a zip archive, or one that is cut off, damaged, or beyond the limits.
  static std::optional<Zip> open(int fd, uint64_t size, std::string* problem);

  uint64_t count() const { return count_; }  // number of entries, according to the archive

  // Passes each entry to `take`, in the directory's order, until `take` returns false. Returns
  // false and sets *problem if the directory is damaged; the entries before the damage have been
  // passed.
  bool for_each(const std::function<bool(ZipEntry&& entry)>& take, std::string* problem) const;

  // Returns where the member's packed bytes begin; nullopt and *problem if its local header is not
  // where and what the directory says.
  std::optional<uint64_t> find_data(const ZipEntry& entry, std::string* problem) const;

  // Unpacks a member: passes its bytes to `take` piece by piece, at most `most` bytes (the rest is
  // left out). Returns false and sets *problem if it is damaged, of an unknown method, encrypted,
  // beyond the limits, or if `take` returned false. If all of it was read, its length and checksum
  // are right.
  bool read(const ZipEntry& entry, uint64_t most,
            const std::function<bool(const uint8_t* bytes, size_t count)>& take,
            std::string* problem) const;

 private:
  Zip(int fd, uint64_t begin, uint64_t directory, uint64_t directory_size, uint64_t count)
      : fd_(fd),
        begin_(begin),
        directory_(directory),
        directory_size_(directory_size),
        count_(count) {}

  int fd_;
  uint64_t begin_;  // where the archive begins in the file
  uint64_t directory_, directory_size_, count_;
};

// Returns what is wrong with the name of a member that is to lie below a folder, or "": absolute,
// leading out of it by "..", with a NUL or a backslash, empty, too long, or not UTF-8.
std::string unsafe_name(const std::string& name);

}  // namespace opdock
