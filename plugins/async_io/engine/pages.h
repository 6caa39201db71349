// Memory for direct I/O.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

namespace async_io {

size_t page_size();

// Whole pages, zeroed, owned by this object. Not tied to an engine; any one thread at a time.
class Pages {
 public:
  Pages() = default;
  // Room for that many bytes. `lock` asks the kernel to keep the pages in memory and to bring them
  // in now (mlock); if it refuses, the pages serve as well, unlocked, and why_not_locked() says
  // why. Throws std::bad_alloc.
  Pages(size_t bytes, bool lock);
  ~Pages();
  Pages(Pages&& other) noexcept { swap(other); }
  Pages& operator=(Pages&& other) noexcept {
    swap(other);
    return *this;
  }

  void* data() const { return data_; }     // nullptr if no bytes were asked for
  size_t bytes() const { return bytes_; }  // as asked for
  bool is_locked() const { return is_locked_; }
  const std::string& why_not_locked() const { return why_not_locked_; }

 private:
  void swap(Pages& other);

  void* data_ = nullptr;
  size_t bytes_ = 0;
  size_t mapped_ = 0;
  bool is_locked_ = false;
  std::string why_not_locked_;
};

}  // namespace async_io
