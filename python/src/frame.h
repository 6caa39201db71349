// The state of one call: memory for converted arguments, objects to keep alive, and what is known
// of the arguments' devices and streams.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <new>

#include "gil.h"
#include "opdock/opdock.h"

namespace opdock::python {

struct TypeEntry;

// The argument being converted, for messages: "softmax(): argument 'x'", "argument 'xs'[2]".
struct Where {
  const char* function;
  const char* parameter;
  Py_ssize_t element = -1;
};

// An array on a GPU whose import, by __dlpack__, waits until the call's stream is known.
struct PendingImport {
  PendingImport* next;
  PyObject* object;
  const TypeEntry* entry;
  Where where;
  bool written;
  opdock_device device;
  opdock_value* value;
  opdock_tensor* tensor;  // for a CuPy array its address, for calls on CuPy's stream; else NULL
};

// A tensor that an array has exported for this call, and the capsule that releases it.
struct Import {
  Import* next;
  const opdock_tensor* tensor;
  PyObject* owner;  // owned by the frame
};

// Lives on the stack of one call; only that call's thread uses it, with the GIL held.
class Frame {
 public:
  Frame() {}  // room_ stays uninitialised, so that a call pays only for what it uses
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;
  ~Frame() {
    if (held_ != nullptr) [[unlikely]]
      release_all();
  }

  // Returns uninitialised memory for n objects of a trivial type, valid until the frame ends.
  template <typename T>
  [[gnu::always_inline]] T* take(size_t n) {
    return take_bytes<T>(sizeof(T) % 16 == 0 ? n * sizeof(T) : round_up(n * sizeof(T)));
  }
  // Does the same for `size` bytes, but returns NULL if room_ is used up.
  template <typename T>
  [[gnu::always_inline]] T* take_quickly(size_t size) {
    const size_t bytes = round_up(size);
    return fits(bytes) ? take_here<T>(bytes) : nullptr;
  }

  // Arranges that release(what) is called when the frame ends, in reverse order. If there is no
  // memory, calls it now and throws.
  void hold(void (*release)(void*), void* what) {
    Held* held = nullptr;
    try {
      held = take<Held>(1);
    } catch (const std::bad_alloc&) {
      release(what);
      throw;
    }
    *held = {held_, release, what};
    held_ = held;
  }
  // Takes over a reference, until the frame ends.
  void hold(PyObject* object) {
    hold([](void* what) { Py_DECREF(static_cast<PyObject*>(what)); }, object);
  }

  // The tensor that decides the type and the device of the results; NULL without tensors.
  PyObject* model = nullptr;
  const TypeEntry* model_entry = nullptr;

  // The type of the first tensor on a GPU whose library exposes its current stream, or NULL.
  const TypeEntry* stream_entry = nullptr;
  void* stream = nullptr;

  PendingImport* pending = nullptr;
  Import* imports = nullptr;
  PyObject* torch_generator = nullptr;  // a torch.Generator among the arguments; borrowed
  bool has_generator = false;           // an argument is a generator
  bool has_torch = false;               // an argument is a torch tensor that took the fast path
  uint64_t cpu_bytes = 0;               // size of the largest tensor on the CPU

  opdock_device device = {OPDOCK_CPU, 0};  // that of `model`
  opdock_device gpu = {OPDOCK_CPU, 0};     // that of the first tensor on a GPU; CPU: none
  bool wait = false;                       // the call must wait for the device before it returns
  bool addresses = false;                  // only the addresses of foreign arrays are needed
  // Whether a torch tensor with a gradient makes the conversion stop, without an error set, for
  // autograd to record the call; and whether one did.
  bool may_record = false;
  bool must_record = false;

 private:
  struct Held {
    Held* next;
    void (*release)(void*);
    void* what;
  };

  static constexpr size_t round_up(size_t size) { return (size + 15) & ~size_t{15}; }
  bool fits(size_t bytes) const {
    return bytes <= static_cast<size_t>(room_ + sizeof room_ - next_);
  }
  template <typename T>
  [[gnu::always_inline]] T* take_here(size_t bytes) {
    T* const taken = reinterpret_cast<T*>(next_);
    next_ += bytes;
    return taken;
  }
  template <typename T>
  [[gnu::always_inline]] T* take_bytes(size_t bytes) {
    if (!fits(bytes)) [[unlikely]]
      return reinterpret_cast<T*>(take_more(bytes));
    return take_here<T>(bytes);
  }

  [[gnu::cold, gnu::noinline]] void release_all() {
    while (held_ != nullptr) {
      const Held held = *held_;  // copied: releasing it may free the memory that it is in
      held_ = held.next;
      block_on_forced_unwind(
          [&held] { held.release(held.what); });  // Python destructors may run code
    }
  }
  // Allocates a separate block. It is freed after everything that was held later.
  [[gnu::cold, gnu::noinline]] std::byte* take_more(size_t bytes) {
    std::byte* block = new std::byte[bytes + sizeof(Held)];
    Held* held = reinterpret_cast<Held*>(block + bytes);
    *held = {held_, [](void* what) { delete[] static_cast<std::byte*>(what); }, block};
    held_ = held;
    return block;
  }

  std::byte* next_ = room_;
  Held* held_ = nullptr;
  alignas(16) std::byte room_[2048];
};

}  // namespace opdock::python
