// The memory of one call, and the handles that it has to free.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "shim.h"

namespace opdock::torch {

// Memory for one call.
class Arena {
 public:
  Arena() {}  // room_ stays uninitialised
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Returns uninitialised memory for n objects of a trivial type, valid as long as the arena.
  template <typename T>
  T* take(size_t n) {
    const size_t size = (n * sizeof(T) + 15) & ~size_t{15};
    if (size > static_cast<size_t>(room_ + sizeof room_ - next_)) [[unlikely]]
      return static_cast<T*>(take_more(size));
    std::byte* const taken = next_;
    next_ += size;
    return reinterpret_cast<T*>(taken);
  }

 private:
  [[gnu::noinline]] void* take_more(size_t size) {
    more_.push_back(std::make_unique<std::byte[]>(size));
    return more_.back().get();
  }

  std::byte* next_ = room_;
  std::vector<std::unique_ptr<std::byte[]>> more_;
  alignas(16) std::byte room_[1536];
};

// A handle that the call has to free.
struct Owned {
  enum Kind : uint8_t { kTensor, kList, kString, kAddress };
  Owned* next;
  StableIValue value;
  Kind kind;
};

inline void release(const Owned& owned) {
  switch (owned.kind) {
    case Owned::kTensor:
      aoti_torch_delete_tensor_object(reinterpret_cast<AtenTensorHandle>(owned.value));
      break;
    case Owned::kList:
      torch_delete_list(reinterpret_cast<StableListHandle>(owned.value));
      break;
    case Owned::kString:
      torch_delete_string(reinterpret_cast<StringHandle>(owned.value));
      break;
    case Owned::kAddress:
      delete reinterpret_cast<StableIValue*>(owned.value);
      break;
  }
}

}  // namespace opdock::torch
