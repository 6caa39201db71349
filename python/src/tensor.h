// Converts Python arrays to opdock_tensor. The kind of array is determined once for each Python
// type.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

#include <string>

#include "dlpack_abi.h"
#include "frame.h"
#include "opdock/opdock.h"

namespace opdock::python {

enum class ArrayKind : uint8_t {
  kNone,      // not an array
  kTorch,     // torch.Tensor, or a subclass that behaves the same
  kExchange,  // another type with DLPack's C exchange table
  kNumpy,     // numpy.ndarray, numpy.memmap
  kDlpack,    // has __dlpack__ and __dlpack_device__: CuPy, JAX, …
  kRefused,   // an array that would be misread; `refusal` says why
};

// The classification of one Python type, cached as long as the type lives.
struct TypeEntry {
  PyObject* reference = nullptr;  // weak; removes the entry when the type is destroyed
  ArrayKind kind = ArrayKind::kNone;
  bool is_cupy = false;
  int32_t cupy_type = OPDOCK_CPU;       // for cupy.ndarray itself: its arrays' device type
  bool borrows = false;                 // api->borrow may be called
  bool immutable = false;               // its library relies on arrays never being written
  const DlpackExchange* api = nullptr;  // kTorch (may be NULL there), kExchange
  std::string refusal;                  // kRefused: "found …, wanted …; …"
};

// An element of the cache of the types seen last, by address.
struct TypeSlot {
  PyTypeObject* type;
  const TypeEntry* entry;
};
inline constexpr size_t kTypeSlots = 64;
extern TypeSlot recent_types[kTypeSlots];
const TypeEntry* classify_slowly(PyTypeObject* type);

// Returns the entry of a type, which is classified if it is new; NULL with a Python error set.
inline const TypeEntry* classify(PyTypeObject* type) {
  const TypeSlot& slot = recent_types[(reinterpret_cast<uintptr_t>(type) >> 4) % kTypeSlots];
  return slot.type == type ? slot.entry : classify_slowly(type);
}

// Converts one array to *out. written: the op writes into it. Returns false with a Python error
// set.
bool convert_tensor(Frame& frame, const Where& where, PyObject* object, bool written,
                    opdock_value* out);

// Finds the call's stream, then imports the arrays that were waiting for it.
bool finish_streams(Frame& frame);
// Imports the waiting arrays for frame.stream. in_order: the type whose arrays the stream orders;
// NULL if it orders none.
bool import_foreign(Frame& frame, const TypeEntry* in_order);

// ---- for each library; the two functions above call these

bool torch_to_tensor(Frame& frame, const Where& where, PyObject* object, const TypeEntry& entry,
                     bool written, opdock_tensor* out);
// Finds the offsets of torch's fields that its exchange table does not expose. Returns false with a
// Python error set.
bool torch_calibrate();
// Returns why a subclass of torch.Tensor cannot be accepted, or an empty string.
std::string torch_subclass_refusal(PyTypeObject* type);

bool numpy_to_tensor(Frame& frame, const Where& where, PyObject* object, opdock_tensor* out,
                     bool* read_only);
// Returns whether this NumPy's structs have the layout that numpy_to_tensor() reads.
bool numpy_layout_holds();
// Gets the dtype of a NumPy dtype object; its elements take 1 << *shift bytes. Returns false,
// without an error set, if numpy_to_tensor() does not accept it.
bool numpy_dtype(PyObject* descriptor, opdock_dtype* type, uint8_t* shift);
// Returns a new, uninitialised array in C order, and sets *data to its memory; NULL with an error
// set.
PyObject* numpy_new(const opdock_output& output, void** data);

// Imports by the __dlpack__ protocol. stream: the protocol's number, or NULL for none.
bool dlpack_to_tensor(Frame& frame, const Where& where, PyObject* object, PyObject* stream,
                      opdock_tensor** out, bool* read_only, bool* copied);
bool dlpack_device(const Where& where, PyObject* object, opdock_device* out);

// ---- shared by these

// Raises ArgumentError or InvalidArgumentError "op(): argument 'x': found …, wanted …; advice".
bool refuse(const char* exception, const Where& where, const std::string& text);

// Checks that the dimensions are within the limit, that there is data if there are elements, and
// that the device is known. Fills in `strides`, with memory of the frame, if the library left them
// NULL.
bool check_tensor_slow(Frame& frame, const Where& where, opdock_tensor* tensor);
inline bool check_tensor(Frame& frame, const Where& where, opdock_tensor* tensor) {
  const int32_t type = tensor->device.type;
  const bool plain = tensor->ndim <= OPDOCK_MAX_NDIM && tensor->data != nullptr &&
                     tensor->strides != nullptr && (type <= OPDOCK_CUDA || type == OPDOCK_ROCM);
  return plain || check_tensor_slow(frame, where, tensor);
}

// Returns the number of elements; 0 if any size is 0, even if the others' product overflows.
inline uint64_t num_elements(const opdock_tensor& tensor) {
  uint64_t n = 1;
  for (int32_t i = 0; i < tensor.ndim; ++i) n *= static_cast<uint64_t>(tensor.shape[i]);
  return n;
}

}  // namespace opdock::python
