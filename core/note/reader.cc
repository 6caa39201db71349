// SPDX-License-Identifier: Apache-2.0
#include "note/reader.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace opdock {
namespace {

constexpr size_t kAtOnce = 8 << 20;  // bytes between two calls of check()
constexpr uint64_t kSmallTable = 16 << 20;
thread_local ReadWatch* the_watch = nullptr;

// The headers, notes and dynamic tables of a typical plugin are in its first 12 KiB.
constexpr size_t kHeadBytes = 12288;
constexpr size_t kWindowBytes = 4096;

}  // namespace

ReadWatch::ReadWatch(std::function<void()> check)
    : check_(std::move(check)), outer_(std::exchange(the_watch, this)) {}

ReadWatch::~ReadWatch() {
  the_watch = outer_;
}

void ReadWatch::count(size_t bytes) {
  if (the_watch == nullptr || (the_watch->bytes_ += bytes) < kAtOnce) return;
  the_watch->bytes_ = 0;
  the_watch->check_();
}

uint64_t FileReader::next_data(uint64_t offset) const {
  if (offset >= size_) return size_;
  const off_t found = lseek(fd_, static_cast<off_t>(offset), SEEK_DATA);
  // After other errors: the file system cannot tell, so everything counts as data.
  if (found < 0) return errno == ENXIO ? size_ : offset;
  return std::clamp(static_cast<uint64_t>(found), offset, size_);
}

bool FileReader::holds(uint64_t offset, uint64_t bytes) const {
  if (bytes <= kSmallTable) return true;
  const uint64_t end = offset + bytes;
  uint64_t held = 0;
  for (uint64_t at = next_data(offset); at < end;) {
    const off_t hole = lseek(fd_, static_cast<off_t>(at), SEEK_HOLE);
    const uint64_t behind = hole < 0 ? end : std::clamp(static_cast<uint64_t>(hole), at + 1, end);
    held += behind - at;
    at = next_data(behind);
  }
  return held >= bytes / 2;
}

bool FileReader::read_exactly(uint64_t offset, void* out, size_t bytes) {
  if (!contains(offset, bytes)) return false;
  if (bytes == 0) return true;  // `out` may be NULL then
  for (const Window* window : {&head_, &last_}) {
    if (window->contains(offset, bytes)) return window->copy(offset, out, bytes);
  }
  uint8_t* to = static_cast<uint8_t*>(out);
  while (bytes > 0) {
    const ssize_t got = ::pread(fd_, to, std::min(bytes, kAtOnce), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      error_ = errno;
      return false;
    }
    if (got == 0) {
      changed_ = true;
      return false;
    }
    to += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<size_t>(got);
    ReadWatch::count(static_cast<size_t>(got));
  }
  return true;
}

bool FileReader::fill(Window* window, uint64_t offset, size_t bytes) {
  bytes = static_cast<size_t>(std::min<uint64_t>(bytes, size_ - offset));
  window->size = 0;  // keeps read_exactly() from using the window while it is filled
  std::unique_ptr<uint8_t[]> fresh = std::make_unique_for_overwrite<uint8_t[]>(bytes);
  if (!read_exactly(offset, fresh.get(), bytes)) return false;
  window->offset = offset;
  window->size = bytes;
  window->bytes = std::move(fresh);
  return true;
}

bool FileReader::read(uint64_t offset, void* out, size_t bytes) {
  if (!contains(offset, bytes)) return false;
  if (bytes == 0) return true;
  if (head_.size == 0 && !changed_ && error_ == 0) fill(&head_, 0, kHeadBytes);
  const Window* window = &head_;
  if (!window->contains(offset, bytes)) {
    if (bytes > kWindowBytes) return read_exactly(offset, out, bytes);
    window = &last_;
    if (!window->contains(offset, bytes) && !fill(&last_, offset, kWindowBytes)) return false;
  }
  return window->copy(offset, out, bytes);
}

bool FileReader::read_text(uint64_t offset, uint64_t end, size_t limit, std::string* out) {
  out->clear();
  end = std::min(end, size_);
  char piece[64];
  while (offset < end && out->size() < limit) {
    const size_t count = static_cast<size_t>(
        std::min<uint64_t>({sizeof(piece), end - offset, uint64_t{limit - out->size()}}));
    if (!read(offset, piece, count)) return false;
    const size_t length = strnlen(piece, count);
    out->append(piece, length);
    if (length < count) return true;
    offset += count;
  }
  return false;
}

}  // namespace opdock
