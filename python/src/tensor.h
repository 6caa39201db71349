// From Python arrays to opdock_tensor. The kind of array is decided once per Python type.
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
  kTorch,     // torch.Tensor or a subclass that is one in all but name
  kExchange,  // another type with DLPack's C exchange table
  kNumpy,     // numpy.ndarray, numpy.memmap
  kDlpack,    // has __dlpack__ and __dlpack_device__: CuPy, JAX, …
  kRefused,   // an array that would be misread; `refusal` says why
};

// The classification of one Python type, cached as long as the type lives.
struct TypeEntry {
  PyObject* reference = nullptr;  // a weak one, which takes the entry away with the type
  ArrayKind kind = ArrayKind::kNone;
  bool is_cupy = false;
  int32_t cupy_type = OPDOCK_CPU;       // of cupy.ndarray itself: the device type of its arrays
  bool borrows = false;                 // api->borrow may be called
  bool immutable = false;               // its library never writes into one, and relies on that
  const DlpackExchange* api = nullptr;  // kTorch (may be NULL there), kExchange
  std::string refusal;                  // kRefused: "found …, wanted …; …"
};

// The types seen last, by their address.
struct TypeSlot {
  PyTypeObject* type;
  const TypeEntry* entry;
};
inline constexpr size_t kTypeSlots = 64;
extern TypeSlot recent_types[kTypeSlots];
const TypeEntry* classify_slowly(PyTypeObject* type);

// The entry of a type, classifying it if it is new; NULL with a Python error set if that failed.
inline const TypeEntry* classify(PyTypeObject* type) {
  const TypeSlot& slot = recent_types[(reinterpret_cast<uintptr_t>(type) >> 4) % kTypeSlots];
  return slot.type == type ? slot.entry : classify_slowly(type);
}

// Converts one array into *out. written: the op writes into it. False with a Python error set.
bool convert_tensor(Frame& frame, const Where& where, PyObject* object, bool written,
                    opdock_value* out);

// Finds the stream to work on and imports the arrays that were waiting for it.
bool finish_streams(Frame& frame);
// The second half of it. in_order: whose arrays are ordered by the stream; NULL: no library's.
bool import_foreign(Frame& frame, const TypeEntry* in_order);

// ---- per library; each is called by the two above

bool torch_to_tensor(Frame& frame, const Where& where, PyObject* object, const TypeEntry& entry,
                     bool written, opdock_tensor* out);
// Learns where this torch keeps what its exchange call does not show. False on a Python error.
bool torch_calibrate();
// Why a subclass of torch.Tensor cannot be taken, or empty.
std::string torch_subclass_refusal(PyTypeObject* type);

bool numpy_to_tensor(Frame& frame, const Where& where, PyObject* object, opdock_tensor* out,
                     bool* read_only);
// Whether this NumPy's arrays are laid out as numpy_to_tensor reads them.
bool numpy_layout_holds();
// The dtype that an object of NumPy's means, whose elements take 1 << *shift bytes. False, and no
// error set, if it is none that numpy_to_tensor() takes.
bool numpy_dtype(PyObject* descriptor, opdock_dtype* type, uint8_t* shift);
// A new, uninitialised array in C order; NULL with an error set. *data is its memory.
PyObject* numpy_new(const opdock_output& output, void** data);

// Imports by the __dlpack__ protocol. stream: the protocol's number, or NULL for none.
bool dlpack_to_tensor(Frame& frame, const Where& where, PyObject* object, PyObject* stream,
                      opdock_tensor** out, bool* read_only, bool* copied);
bool dlpack_device(const Where& where, PyObject* object, opdock_device* out);

// ---- shared by them

// Raises ArgumentError or InvalidArgumentError "op(): argument 'x': found …, wanted …; advice".
bool refuse(const char* exception, const Where& where, const std::string& text);

// Dimensions within the limit, strides present, data present if there are elements, a device this
// interface knows. `strides` are filled in from the frame if the library left them NULL.
bool check_odd_tensor(Frame& frame, const Where& where, opdock_tensor* tensor);
inline bool check_tensor(Frame& frame, const Where& where, opdock_tensor* tensor) {
  const int32_t type = tensor->device.type;
  const bool plain = tensor->ndim <= OPDOCK_MAX_NDIM && tensor->data != nullptr &&
                     tensor->strides != nullptr && (type <= OPDOCK_CUDA || type == OPDOCK_ROCM);
  return plain || check_odd_tensor(frame, where, tensor);
}

// 0 without elements, whatever the other sizes are.
inline uint64_t num_elements(const opdock_tensor& tensor) {
  uint64_t n = 1;
  for (int32_t i = 0; i < tensor.ndim; ++i) n *= static_cast<uint64_t>(tensor.shape[i]);
  return n;
}

}  // namespace opdock::python
