// SPDX-License-Identifier: Apache-2.0
#include "pages.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <new>
#include <utility>

#include "failure.h"

namespace async_io {
namespace {

std::string lock_refusal(int error, size_t bytes) {
  std::string text = "mlock of " + std::to_string(bytes) + " bytes: " + error_text(error);
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    text +=
        "; the limit of locked memory is " + std::to_string(limit.rlim_cur) + " bytes (ulimit -l)";
  return text;
}

}  // namespace

size_t page_size() {
  static const size_t size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

Pages::Pages(size_t bytes, bool lock) : bytes_(bytes) {
  if (bytes == 0) return;
  if (bytes > PTRDIFF_MAX - page_size()) throw std::bad_alloc();
  mapped_ = (bytes + page_size() - 1) / page_size() * page_size();
  void* data = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) throw std::bad_alloc();
  data_ = data;
  // Fewer and larger pieces for the device. Where there are no huge pages, nothing changes.
  madvise(data_, mapped_, MADV_HUGEPAGE);
  if (!lock) return;
  is_locked_ = mlock(data_, mapped_) == 0;
  if (!is_locked_) why_not_locked_ = lock_refusal(errno, mapped_);
}

Pages::~Pages() {
  if (data_ != nullptr) munmap(data_, mapped_);
}

void Pages::swap(Pages& other) {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(mapped_, other.mapped_);
  std::swap(is_locked_, other.is_locked_);
  std::swap(why_not_locked_, other.why_not_locked_);
}

}  // namespace async_io
