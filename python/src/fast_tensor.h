// The fast path from a NumPy array or a torch tensor to an opdock_tensor, which nearly every
// argument takes. It converts plain arrays and leaves all others, and all errors, to
// convert_tensor(), so none of its checks may be weaker than the ones there.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/numpy.h>

#include <cstring>

#include "frame.h"
#include "tensor.h"
#include "torch_probe.h"

namespace opdock::python {

// A cache of the NumPy dtype objects seen last, by address; it holds a reference to each. All have
// native byte order and an element size that is a power of two.
struct NumpyDtype {
  PyObject* descriptor;
  opdock_dtype type;
  uint8_t shift;  // an element takes 1 << shift bytes
};
inline constexpr size_t kDtypeSlots = 32;
extern NumpyDtype recent_dtypes[kDtypeSlots];

// NumPy's built-in dtype objects are 512 bytes apart; added ones may be anywhere.
inline NumpyDtype& dtype_slot(const PyObject* descriptor) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(descriptor);
  return recent_dtypes[(address >> 9 ^ address >> 4) % kDtypeSlots];
}

// The offsets of torch's fields that its exchange table does not expose, and the key sets of plain
// tensors. All zero, so that nothing is accepted, until torch_calibrate() has found the offsets.
struct TorchPlain {
  TorchProbe at;
  uint64_t keys[2];
  uint64_t tracked;  // the key that tensors made in inference mode lack; 0: unknown
};
extern TorchPlain torch_plain;

inline void note_tensor(Frame& frame, PyObject* object, const TypeEntry& entry, bool shows_stream,
                        const opdock_device& device) {
  if (frame.model == nullptr) {
    frame.model = object;
    frame.model_entry = &entry;
    frame.device = device;
  }
  if (device.type == OPDOCK_CPU) return;
  if (frame.gpu.type == OPDOCK_CPU) frame.gpu = device;
  // torch's stream takes precedence over CuPy's: torch's graphs and allocator depend on it.
  if (shows_stream && (frame.stream_entry == nullptr || frame.stream_entry->is_cupy)) {
    frame.stream_entry = &entry;
  }
}

inline void note_cpu_tensor(Frame& frame, PyObject* object, const TypeEntry& entry,
                            uint64_t bytes) {
  if (bytes > frame.cpu_bytes) frame.cpu_bytes = bytes;
  if (frame.model != nullptr) return;
  frame.model = object;
  frame.model_entry = &entry;
}

// These two are separate functions, so that each has all registers. They return false, without an
// error set, if they do not handle the object.
[[gnu::noinline]] inline bool fast_numpy(Frame& frame, PyObject* object, const TypeEntry& entry,
                                         bool written, opdock_value* out) {
  using Api = pybind11::detail::npy_api;
  const auto* array = reinterpret_cast<const pybind11::detail::PyArray_Proxy*>(object);
  PyObject* descriptor = array->descr;
  const NumpyDtype& known = dtype_slot(descriptor);
  const int wanted = Api::NPY_ARRAY_ALIGNED_ | (written ? Api::NPY_ARRAY_WRITEABLE_ : 0);
  const int ndim = array->nd;
  const int flags = array->flags;
  if (known.descriptor != descriptor || (flags & wanted) != wanted || ndim > OPDOCK_MAX_NDIM ||
      array->data == nullptr) {
    return false;
  }
  struct Room {
    opdock_tensor tensor;
    int64_t strides[1];
  };
  // This function must contain no call, not even a rare one, since registers would be saved for it.
  Room* room = frame.take_quickly<Room>(sizeof(opdock_tensor) + static_cast<size_t>(ndim) * 8);
  if (room == nullptr) return false;
  const int shift = known.shift;
  int64_t bytes = int64_t{1} << shift;
  const int64_t remainder = bytes - 1;
  int64_t odd = 0;
#pragma GCC unroll 1
  for (int i = 0; i < ndim; ++i) {
    const int64_t stride = array->strides[i];
    odd |= stride;
    room->strides[i] = stride >> shift;
    bytes *= array->dimensions[i];
  }
  if ((odd & remainder) != 0) return false;
  room->tensor = {array->data,
                  {OPDOCK_CPU, 0},
                  ndim,
                  known.type,
                  const_cast<int64_t*>(array->dimensions),
                  room->strides,
                  0};
  const bool writable = (flags & Api::NPY_ARRAY_WRITEABLE_) != 0;
  *out = {OPDOCK_TAG_TENSOR, writable ? 0u : OPDOCK_VALUE_READ_ONLY, {.tensor = &room->tensor}};
  note_cpu_tensor(frame, object, entry, static_cast<uint64_t>(bytes));
  return true;
}

[[gnu::noinline]] inline bool fast_torch(Frame& frame, PyObject* object, const TypeEntry& entry,
                                         bool written, opdock_value* out) {
  const auto word = [](const void* base, ptrdiff_t offset) {
    uint64_t value;
    std::memcpy(&value, static_cast<const char*>(base) + offset, sizeof value);
    return value;
  };
  if (!entry.borrows || torch_plain.keys[0] == 0) return false;
  const void* impl = reinterpret_cast<const void*>(word(object, torch_plain.at.impl));
  const uint64_t keys = word(impl, torch_plain.at.keys);
  if ((keys != torch_plain.keys[0] && keys != torch_plain.keys[1]) ||
      word(impl, torch_plain.at.grad) != 0 || (written && (keys & torch_plain.tracked) == 0)) {
    return false;
  }
  opdock_tensor* tensor = frame.take<opdock_tensor>(1);
  if (entry.api->borrow(object, tensor) != 0) {
    PyErr_Clear();  // convert_tensor() will hit the error again and report it
    return false;
  }
  const int32_t ndim = tensor->ndim;
  const int32_t device = tensor->device.type;
  if (tensor->data == nullptr || tensor->strides == nullptr || ndim > OPDOCK_MAX_NDIM ||
      (device > OPDOCK_CUDA && device != OPDOCK_ROCM)) {
    return false;
  }
  *out = {OPDOCK_TAG_TENSOR, 0, {.tensor = tensor}};
  frame.has_torch = true;
  if (device != OPDOCK_CPU) {
    note_tensor(frame, object, entry, true, tensor->device);
    return true;
  }
  // Unsigned: if one size is 0, the others may have any value, and the product may wrap around.
  uint64_t bytes = static_cast<uint64_t>(tensor->dtype.bits * tensor->dtype.lanes + 7) / 8;
#pragma GCC unroll 1
  for (int32_t i = 0; i < ndim; ++i) bytes *= static_cast<uint64_t>(tensor->shape[i]);
  note_cpu_tensor(frame, object, entry, bytes);
  return true;
}

// Does what convert_tensor() does; returns false, without an error set, for an object that it does
// not handle. Once all arguments are converted, check_recording() must follow.
[[gnu::always_inline]] inline bool fast_tensor(Frame& frame, PyObject* object, bool written,
                                               opdock_value* out) {
  PyTypeObject* type = Py_TYPE(object);
  const TypeSlot& slot = recent_types[(reinterpret_cast<uintptr_t>(type) >> 4) % kTypeSlots];
  if (slot.type != type) return false;
  const TypeEntry& entry = *slot.entry;
  if (entry.kind == ArrayKind::kNumpy) return fast_numpy(frame, object, entry, written, out);
  return entry.kind == ArrayKind::kTorch && fast_torch(frame, object, entry, written, out);
}

}  // namespace opdock::python
