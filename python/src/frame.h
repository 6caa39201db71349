// What one call needs while it runs: room for converted arguments, objects to keep alive, and what
// was learnt about devices and streams on the way.
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
  opdock_tensor* tensor;  // CuPy's: its address, for calls on CuPy's own stream; else NULL
};

// A tensor that an array has exported for this call, and what gives it back when it goes.
struct Import {
  Import* next;
  const opdock_tensor* tensor;
  PyObject* owner;  // the frame's
};

// Lives on the stack of one call and is used by its thread only, with the GIL held.
class Frame {
 public:
  Frame() {}  // room_ stays uninitialised: a call pays for what it uses
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;
  ~Frame() {
    if (held_ != nullptr) [[unlikely]]
      release_all();
  }

  // Room for n objects of a trivial type, uninitialised, until the frame ends.
  template <typename T>
  [[gnu::always_inline]] T* take(size_t n) {
    return take_bytes<T>(sizeof(T) % 16 == 0 ? n * sizeof(T) : round_up(n * sizeof(T)));
  }
  // The same, but NULL where the frame's own room is used up.
  template <typename T>
  [[gnu::always_inline]] T* take_quickly(size_t size) {
    const size_t bytes = round_up(size);
    return fits(bytes) ? take_here<T>(bytes) : nullptr;
  }

  // Calls release(what) when the frame ends, the last one first; now, if there is no memory.
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
  // Takes over a reference.
  void hold(PyObject* object) {
    hold([](void* what) { Py_DECREF(static_cast<PyObject*>(what)); }, object);
  }

  // The tensor whose type the results have, and whose device they lie on; NULL without tensors.
  PyObject* model = nullptr;
  const TypeEntry* model_entry = nullptr;

  // The first tensor on a GPU whose library shows a current stream, or NULL.
  const TypeEntry* stream_entry = nullptr;
  void* stream = nullptr;

  Foreign* foreign = nullptr;
  Import* imports = nullptr;
  PyObject* torch_generator = nullptr;  // a generator argument that is torch's; borrowed
  bool has_generator = false;           // an argument is a generator
  bool has_torch = false;               // an argument is a torch tensor, taken the short way
  uint64_t cpu_bytes = 0;               // of the largest tensor on the CPU

  opdock_device device = {OPDOCK_CPU, 0};  // of `model`
  opdock_device gpu = {OPDOCK_CPU, 0};     // of the first tensor on a GPU; type CPU: there is none
  bool wait = false;                       // the device must be done before the call returns
  bool addresses = false;  // of arrays that are foreign nothing but their addresses is wanted

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
      const Held held = *held_;  // what is released may be where it lies
      held_ = held.next;
      or_stop([&held] { held.release(held.what); });  // of Python objects, whose code may run
    }
  }
  // Memory of its own, given back as the last thing of what was held after it.
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
