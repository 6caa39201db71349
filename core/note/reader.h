// Bounded reads from an open file. The file is not mapped, since a mapped file that shrinks would
// crash the process.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>

namespace opdock {

// While one lives, reads on this thread call check() every few MiB. An exception that check()
// throws ends the reading.
class ReadWatch {
 public:
  explicit ReadWatch(std::function<void()> check);
  ~ReadWatch();
  ReadWatch(const ReadWatch&) = delete;
  ReadWatch& operator=(const ReadWatch&) = delete;

  // Reports that `bytes` were read.
  static void count(size_t bytes);

 private:
  std::function<void()> check_;
  size_t bytes_ = 0;
  ReadWatch* outer_;
};

// Reads within [0, size) of `fd`, which the caller keeps open and closes. Caches the beginning of
// the file and the surroundings of the last read after it, so that a plugin is checked with a
// handful of system calls. Not thread-safe.
class FileReader {
 public:
  FileReader(int fd, uint64_t size) : fd_(fd), size_(size) {}

  uint64_t size() const { return size_; }
  // True if [offset, offset + bytes) lies inside the file; never overflows.
  bool contains(uint64_t offset, uint64_t bytes) const {
    return offset <= size_ && bytes <= size_ - offset;
  }

  // Copies bytes to `out`. Returns false if they are not inside the file, or if reading failed
  // (then error_number() or changed() says why).
  bool read(uint64_t offset, void* out, size_t bytes);
  // Does the same without reading ahead, for single reads that are far apart.
  bool read_exactly(uint64_t offset, void* out, size_t bytes);

  template <typename T>
  bool read(uint64_t offset, T* out) {
    static_assert(std::is_trivially_copyable_v<T>);
    return read(offset, out, sizeof(T));
  }

  // Returns the first offset at or after `offset` that is not in a hole of the file; size() if
  // there is none.
  uint64_t next_data(uint64_t offset) const;
  // Returns whether at least half of these bytes are outside holes. A file that takes a few KiB of
  // disk can have tables of gigabytes in holes, which no real tool writes. A small range always
  // counts as held.
  bool holds(uint64_t offset, uint64_t bytes) const;

  // Reads a NUL-terminated text of at most `limit` bytes that begins at `offset` and ends before
  // `end`.
  bool read_text(uint64_t offset, uint64_t end, size_t limit, std::string* out);

  // Returns whether the file had fewer bytes than its size promised: it shrank while it was read.
  bool changed() const { return changed_; }
  int error_number() const { return error_; }  // errno of a failed read, or 0

 private:
  struct Window {
    uint64_t offset = 0;
    size_t size = 0;
    std::unique_ptr<uint8_t[]> bytes;
    bool contains(uint64_t at, size_t count) const {
      return at >= offset && at - offset <= size && count <= size - (at - offset);
    }
    bool copy(uint64_t at, void* out, size_t count) const {
      std::memcpy(out, bytes.get() + (at - offset), count);
      return true;
    }
  };
  bool fill(Window* window, uint64_t offset, size_t bytes);

  int fd_;
  uint64_t size_;
  Window head_, last_;
  bool changed_ = false;
  int error_ = 0;
};

}  // namespace opdock
