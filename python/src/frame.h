// What one call needs while it runs: room for converted arguments, objects to keep alive, and what
// was learnt about devices and streams on the way.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "opdock/opdock.h"

namespace opdock::python {

struct TypeEntry;

// Which argument is being converted, for messages: "softmax(): argument 'x'", "argument 'xs'[2]".
struct Where {
  const char* function;
  const char* parameter;
  Py_ssize_t element = -1;
};

// An array on a GPU that is imported by a handshake once the stream is known.
struct Foreign {
  Foreign* next;
  PyObject* object;
  const TypeEntry* entry;
  Where where;
  bool written;
  opdock_device device;
  opdock_value* value;
};

// Lives on the stack of one call and is used by its thread only, with the GIL held.
class Frame {
 public:
  Frame() {}  // room_ stays uninitialised: a call pays for what it uses
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;
  ~Frame() {
    while (held_ != nullptr) {
      held_->release(held_->what);
      held_ = held_->next;
    }
  }

  // Room for n objects of a trivial type, uninitialised, until the frame ends.
  template <typename T>
  T* take(size_t n) {
    const size_t bytes = (n * sizeof(T) + 15) & ~size_t{15};
    if (bytes <= sizeof(room_) - used_) {
      used_ += bytes;
      return reinterpret_cast<T*>(room_ + used_ - bytes);
    }
    more_.push_back(std::make_unique<std::byte[]>(bytes));
    return reinterpret_cast<T*>(more_.back().get());
  }

  // Calls release(what) when the frame ends, the last one first.
  void hold(void (*release)(void*), void* what) {
    Held* held = take<Held>(1);
    *held = {held_, release, what};
    held_ = held;
  }
  // Takes over a reference.
  void hold(PyObject* object) {
    hold([](void* what) { Py_DECREF(static_cast<PyObject*>(what)); }, object);
  }

  // The tensor whose type the results have, and whose device they lie on; NULL without tensors.
  PyObject* model = nullptr;
  const TypeEntry* model_entry = nullptr;
  opdock_device device = {OPDOCK_CPU, 0};

  // The first tensor on a GPU whose library shows a current stream, or NULL.
  const TypeEntry* stream_entry = nullptr;
  opdock_device gpu = {OPDOCK_CPU, 0};  // of the first tensor on a GPU; type CPU: there is none
  void* stream = nullptr;
  bool wait = false;  // the device must be done before the call returns

  uint64_t cpu_bytes = 0;  // of the largest tensor on the CPU
  Foreign* foreign = nullptr;

 private:
  struct Held {
    Held* next;
    void (*release)(void*);
    void* what;
  };
  alignas(16) std::byte room_[2048];
  size_t used_ = 0;
  Held* held_ = nullptr;
  std::vector<std::unique_ptr<std::byte[]>> more_;
};

}  // namespace opdock::python
