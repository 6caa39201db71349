// SPDX-License-Identifier: Apache-2.0
#include "note/reader.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace opdock {
namespace {

// Headers, notes and dynamic tables of a usual plugin lie in its first 12 KiB.
constexpr size_t kHeadBytes = 12288;
constexpr size_t kWindowBytes = 4096;

}  // namespace

bool FileReader::read_exactly(uint64_t offset, void* out, size_t bytes) {
  if (!contains(offset, bytes)) return false;
  if (bytes == 0) return true;  // `out` may be NULL then
  for (const Window* window : {&head_, &last_}) {
    if (window->contains(offset, bytes)) return window->copy(offset, out, bytes);
  }
  uint8_t* to = static_cast<uint8_t*>(out);
  while (bytes > 0) {
    const ssize_t got = ::pread(fd_, to, bytes, static_cast<off_t>(offset));
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
  }
  return true;
}

bool FileReader::fill(Window* window, uint64_t offset, size_t bytes) {
  bytes = static_cast<size_t>(std::min<uint64_t>(bytes, size_ - offset));
  window->size = 0;  // so that the read does not look into the window that it fills
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
