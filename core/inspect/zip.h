// Zip archives from anybody, read in place: the directory, and one member at a time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace opdock {

struct ZipEntry {
  std::string name;       // as stored; may be anything: unsafe_name() judges it
  uint64_t position = 0;  // in the directory, from 0
  uint64_t header = 0;    // where its local header is in the file
  uint64_t packed = 0;    // bytes in the file
  uint64_t size = 0;      // bytes when unpacked, as the directory has it
  uint32_t crc = 0;
  uint16_t method = 0;  // 0: stored, 8: deflated
  bool is_encrypted = false;
  bool is_folder = false;
  bool is_link = false;     // a symbolic link, by the mode that Unix tools store
  bool is_program = false;  // somebody may execute it, likewise
};

// Limits of what is read. A wheel of ten gigabytes has some ten thousand members.
inline constexpr uint64_t kMostZipEntries = 1'000'000;
inline constexpr uint64_t kMostZipDirectoryBytes = uint64_t{256} << 20;
inline constexpr uint64_t kMostMemberBytes = uint64_t{16} << 30;
// Above kFreeMemberBytes no member may be larger than kMostRatio times its packed size: libraries
// reach 20, deflate can 1032.
inline constexpr uint64_t kFreeMemberBytes = uint64_t{64} << 20;
inline constexpr uint64_t kMostRatio = 200;

// Reads `fd`, a regular file of `size` bytes, which the caller keeps open. Bytes may stand before
// the archive, such as a program that unpacks it; its offsets then count from behind them.
// Thread-safe.
class Zip {
 public:
  // Finds the directory; nullopt and *problem ("found …, wanted …" without the words) if this is no
  // zip archive, or one that is cut off, damaged, or beyond the limits.
  static std::optional<Zip> open(int fd, uint64_t size, std::string* problem);

  uint64_t count() const { return count_; }  // of entries, as the archive says

  // Hands over each entry in the directory's order; false from `take` ends it. False and *problem
  // if the directory is damaged: the entries before it have been handed over.
  bool for_each(const std::function<bool(ZipEntry&& entry)>& take, std::string* problem) const;

  // Where the member's packed bytes begin; nullopt and *problem if its local header is not where
  // and what the directory says.
  std::optional<uint64_t> find_data(const ZipEntry& entry, std::string* problem) const;

  // Unpacks a member: hands its bytes over piece by piece, `most` at most (what is behind is left
  // out). False and *problem if it is damaged, of an unknown method, encrypted, beyond the limits,
  // or if `take` returned false. If all of it was read, its length and checksum are right.
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
  uint64_t begin_;  // of the archive in the file
  uint64_t directory_, directory_size_, count_;
};

// What is wrong with the name of a member that is to lie below a folder, or "": absolute, leading
// out of it by "..", with a NUL or a backslash, empty, too long, or not UTF-8.
std::string unsafe_name(const std::string& name);

}  // namespace opdock
