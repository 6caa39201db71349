// Visits the elements of a tensor in host memory in row-major order, for any strides.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstring>
#include <opdock/plugin.hpp>

namespace convert_copy {

class Elements {
 public:
  // Describes the elements of a tensor, which has at least one.
  explicit Elements(opdock::Tensor tensor)
      : memory_(static_cast<char*>(tensor.raw())), bytes_(tensor.dtype().bytes()) {
    // Goes from the last dimension to the first; merges evenly spaced dimensions into one.
    for (int32_t i = tensor.ndim() - 1; i >= 0; --i) {
      const int64_t size = tensor.shape()[i], stride = tensor.strides()[i] * bytes_;
      if (size == 1) continue;
      if (ndim_ > 0 && stride == stride_[ndim_ - 1] * size_[ndim_ - 1]) {
        size_[ndim_ - 1] *= size;
        continue;
      }
      size_[ndim_] = size;
      stride_[ndim_++] = stride;
    }
    if (ndim_ == 0) append_one(1);
  }
  // Describes `count` contiguous elements of `bytes` bytes each.
  Elements(void* memory, int64_t count, int64_t bytes)
      : memory_(static_cast<char*>(memory)), bytes_(bytes) {
    append_one(count);
  }

  int64_t bytes() const { return bytes_; }

 private:
  friend class Cursor;
  void append_one(int64_t count) {
    size_[0] = count;
    stride_[0] = bytes_;
    ndim_ = 1;
  }

  char* memory_;
  int64_t bytes_;  // size of an element
  int32_t ndim_ = 0;
  int64_t size_[OPDOCK_MAX_NDIM];    // the innermost dimension first
  int64_t stride_[OPDOCK_MAX_NDIM];  // in bytes
};

// Walks through the elements, beginning with element `begin`.
class Cursor {
 public:
  Cursor(const Elements& elements, int64_t begin) : of_(elements), at_(of_.memory_) {
    for (int32_t i = 0; i < of_.ndim_; ++i) {
      index_[i] = begin % of_.size_[i];
      begin /= of_.size_[i];
      at_ += index_[i] * of_.stride_[i];
    }
  }

  // Returns the address of the next `count` elements and skips them if they are contiguous; else
  // NULL.
  void* direct(int64_t count) {
    if (of_.stride_[0] != of_.bytes_ || of_.size_[0] - index_[0] < count) return nullptr;
    char* const here = at_;
    advance(count);
    return here;
  }
  // Copies the next `count` elements to contiguous memory, or from it.
  void gather(int64_t count, void* to) { copy<true>(count, static_cast<char*>(to)); }
  void scatter(int64_t count, const void* from) {
    copy<false>(count, const_cast<char*>(static_cast<const char*>(from)));
  }

 private:
  // Skips `count` elements; the innermost dimension must have that many left.
  void advance(int64_t count) {
    at_ += count * of_.stride_[0];
    index_[0] += count;
    for (int32_t i = 0; i + 1 < of_.ndim_ && index_[i] == of_.size_[i]; ++i) {
      at_ += of_.stride_[i + 1] - index_[i] * of_.stride_[i];
      index_[i] = 0;
      ++index_[i + 1];
    }
  }

  template <bool Gather>
  void copy(int64_t count, char* packed) {
    switch (of_.bytes_) {
      case 1:
        return copy_sized<Gather, 1>(count, packed);
      case 2:
        return copy_sized<Gather, 2>(count, packed);
      case 4:
        return copy_sized<Gather, 4>(count, packed);
      default:
        return copy_sized<Gather, 8>(count, packed);
    }
  }
  template <bool Gather, int64_t Bytes>
  void copy_sized(int64_t count, char* packed) {
    while (count > 0) {
      const int64_t some = std::min(count, of_.size_[0] - index_[0]), stride = of_.stride_[0];
      char* here = at_;
      for (int64_t i = 0; i < some; ++i, here += stride, packed += Bytes)
        std::memcpy(Gather ? packed : here, Gather ? here : packed, Bytes);
      advance(some);
      count -= some;
    }
  }

  const Elements& of_;
  char* at_;
  int64_t index_[OPDOCK_MAX_NDIM];
};

}  // namespace convert_copy
