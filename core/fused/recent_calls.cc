// SPDX-License-Identifier: Apache-2.0
#include "fused/recent_calls.h"

#include <atomic>

namespace opdock {
namespace {

uint64_t word_of(opdock_dtype dtype) {
  return dtype.code | static_cast<uint64_t>(dtype.bits) << 8 |
         static_cast<uint64_t>(dtype.lanes) << 16;
}

}  // namespace

void CallKey::add_tensor(const opdock_value& value, uint64_t unit) {
  const opdock_tensor& x = *value.as.tensor;
  const auto rank = static_cast<size_t>(x.ndim);
  if (x.ndim < 0 || x.ndim > OPDOCK_MAX_NDIM || count_ + 1 + 2 * rank > kMaxWords ||
      (rank != 0 && x.strides == nullptr)) {
    is_complete_ = false;
    return;
  }
  const uint64_t rest = (reinterpret_cast<uintptr_t>(x.data) + x.byte_offset) & (unit - 1);
  add(value.tag | rank << 8 | rest << 16 | word_of(x.dtype) << 32);
  for (size_t d = 0; d < rank; ++d) {
    add(static_cast<uint64_t>(x.shape[d]));
    add(static_cast<uint64_t>(x.strides[d]));
  }
}

void CallKey::add_string(const opdock_string& text) {
  const size_t whole = text.size / sizeof(uint64_t), rest = text.size % sizeof(uint64_t);
  if (whole + 2 > kMaxWords - count_) {
    is_complete_ = false;
    return;
  }
  add(OPDOCK_TAG_STRING | text.size << 8);
  uint64_t word = 0;
  for (size_t i = 0; i < whole; ++i) {
    std::memcpy(&word, text.data + i * sizeof word, sizeof word);
    add(word);
  }
  word = 0;
  if (rest != 0) std::memcpy(&word, text.data + whole * sizeof word, rest);
  add(word);
}

void CallKey::add(const opdock_value* values, uint32_t count, uint64_t unit) {
  for (uint32_t i = 0; i < count; ++i) {
    const opdock_value& value = values[i];
    if (value.tag == OPDOCK_TAG_TENSOR) {
      add_tensor(value, unit);
      continue;
    }
    if (value.tag == OPDOCK_TAG_STRING) {
      add_string(*value.as.str);
      continue;
    }
    if (value.tag == OPDOCK_TAG_DTYPE && count_ < kMaxWords) {
      add(value.tag | word_of(value.as.dtype) << 32);
      continue;
    }
    // Numbers are passed with each call; a bool chooses what is computed, as a string does.
    const bool is_number = value.tag == OPDOCK_TAG_INT || value.tag == OPDOCK_TAG_FLOAT;
    const bool is_bool = value.tag == OPDOCK_TAG_BOOL;
    if (count_ == kMaxWords || (!is_number && !is_bool && value.tag != OPDOCK_TAG_NONE)) {
      is_complete_ = false;
      return;
    }
    add(value.tag | (is_bool && value.as.i64 != 0 ? 256 : 0));
  }
}

uint64_t ThreadCalls::first_number() {
  static std::atomic<uint64_t> threads{0};
  return (threads.fetch_add(1, std::memory_order_relaxed) + 1) << 40;
}

}  // namespace opdock
