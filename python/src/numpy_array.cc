// Reads NumPy arrays through their C structs. The layout is the one that pybind11 declares for
// every NumPy since 1.7; numpy_layout_holds() checks it against this NumPy before anything relies
// on it.
// SPDX-License-Identifier: Apache-2.0
#include <pybind11/numpy.h>

#include <atomic>
#include <bit>
#include <utility>
#include <vector>

#include "errors.h"
#include "fast_tensor.h"
#include "opdock/overlap.hpp"
#include "opdock/types.hpp"
#include "tensor.h"

namespace py = pybind11;

namespace opdock::python {

namespace {

using Array = py::detail::PyArray_Proxy;
using Descriptor = py::detail::PyArrayDescr_Proxy;
using Api = py::detail::npy_api;
static_assert(sizeof(ssize_t) == sizeof(int64_t) && std::endian::native == std::endian::little);

constexpr int kHalf = 23;  // NPY_HALF
constexpr int kFirstUserType = 256;

constexpr opdock_dtype dtype(uint8_t code, size_t bytes) {
  return {code, static_cast<uint8_t>(bytes * 8), 1};
}

// Indexed by NumPy's type number, up to NPY_CDOUBLE; bits is 0 for a type that DLPack does not
// have.
constexpr opdock_dtype kBuiltin[] = {
    dtype(OPDOCK_DTYPE_BOOL, 1),
    dtype(OPDOCK_DTYPE_INT, 1),
    dtype(OPDOCK_DTYPE_UINT, 1),
    dtype(OPDOCK_DTYPE_INT, sizeof(short)),
    dtype(OPDOCK_DTYPE_UINT, sizeof(short)),
    dtype(OPDOCK_DTYPE_INT, sizeof(int)),
    dtype(OPDOCK_DTYPE_UINT, sizeof(int)),
    dtype(OPDOCK_DTYPE_INT, sizeof(long)),
    dtype(OPDOCK_DTYPE_UINT, sizeof(long)),
    dtype(OPDOCK_DTYPE_INT, sizeof(long long)),
    dtype(OPDOCK_DTYPE_UINT, sizeof(long long)),
    dtype(OPDOCK_DTYPE_FLOAT, 4),
    dtype(OPDOCK_DTYPE_FLOAT, 8),
    {0, 0, 0},  // long double
    dtype(OPDOCK_DTYPE_COMPLEX, 8),
    dtype(OPDOCK_DTYPE_COMPLEX, 16),
};

// Returns whether the package ml_dtypes adds this dtype to NumPy and its elements take whole bytes.
constexpr bool is_added(uint8_t code, uint8_t bits) {
  return (code == OPDOCK_DTYPE_BFLOAT || code >= OPDOCK_DTYPE_FLOAT8_E3M4) && bits % 8 == 0;
}

std::string attribute_text(PyObject* object, const char* name) {
  PyObject* value = PyObject_GetAttrString(object, name);
  std::string text;
  if (value != nullptr && PyUnicode_Check(value)) {
    const char* chars = PyUnicode_AsUTF8(value);
    if (chars != nullptr) text = chars;
  }
  Py_XDECREF(value);
  PyErr_Clear();
  return text;
}

// Returns the meaning of a dtype that a package registered; bits is 0 if unknown. Its type number
// never changes within a process.
opdock_dtype user_dtype(const Descriptor* descriptor) {
  static auto& known = *new std::vector<std::pair<int, opdock_dtype>>();
  for (const auto& [number, found] : known) {
    if (number == descriptor->type_num) return found;
  }
  opdock_dtype found = {0, 0, 0};
  if (attribute_text(descriptor->typeobj, "__module__") == "ml_dtypes") {
    const std::string name = attribute_text(descriptor->typeobj, "__name__");
    for (const opdock::detail::DtypeName& one : opdock::detail::kDtypeNames) {
      if (is_added(one.code, one.bits) && one.name == name) found = {one.code, one.bits, 1};
    }
  }
  known.emplace_back(descriptor->type_num, found);
  return found;
}

opdock_dtype dtype_of(const Descriptor* descriptor) {
  const int number = descriptor->type_num;
  if (static_cast<size_t>(number) < std::size(kBuiltin)) return kBuiltin[number];
  if (number == kHalf) return dtype(OPDOCK_DTYPE_FLOAT, 2);
  return number >= kFirstUserType ? user_dtype(descriptor) : opdock_dtype{0, 0, 0};
}

int type_number(opdock_dtype type) {
  for (size_t i = 0; i < std::size(kBuiltin); ++i) {
    if (kBuiltin[i].code == type.code && kBuiltin[i].bits == type.bits) return static_cast<int>(i);
  }
  return type.code == OPDOCK_DTYPE_FLOAT && type.bits == 16 ? kHalf : -1;
}

bool refuse_dtype(const Where& where, PyObject* descriptor) {
  PyObject* text = PyObject_Str(descriptor);  // ">f4" for big-endian, "object", …
  const char* chars = text == nullptr ? nullptr : PyUnicode_AsUTF8(text);
  const std::string name = chars == nullptr ? "?" : chars;
  Py_XDECREF(text);
  return refuse(kInvalidArgumentError, where,
                "found a NumPy array of dtype " + name +
                    ", wanted a number type of fixed width in native byte order (bool, int8…uint64,"
                    " float16…float64, complex, or one of ml_dtypes); convert it with .astype()");
}

// Adds a dtype object to the cache of fast_tensor() and numpy_dtype().
void remember(PyObject* descriptor, opdock_dtype type) {
  NumpyDtype& slot = dtype_slot(descriptor);
  if (slot.descriptor == descriptor) return;
  PyObject* before = slot.descriptor;
  const int shift = std::countr_zero(static_cast<unsigned>(type.bits / 8));
  slot = {Py_NewRef(descriptor), type, static_cast<uint8_t>(shift)};
  Py_XDECREF(before);
}

}  // namespace

NumpyDtype recent_dtypes[kDtypeSlots];

bool numpy_to_tensor(Frame& frame, const Where& where, PyObject* object, opdock_tensor* out,
                     bool* read_only) {
  const Array* array = reinterpret_cast<const Array*>(object);
  const Descriptor* descriptor = reinterpret_cast<const Descriptor*>(array->descr);
  const opdock_dtype type = dtype_of(descriptor);
  if (type.bits == 0 || descriptor->byteorder == '>') return refuse_dtype(where, array->descr);
  const int64_t element = type.bits / 8;  // always a power of two
  const int shift = std::countr_zero(static_cast<unsigned>(element));
  const int ndim = array->nd;
  int64_t* strides = frame.take<int64_t>(static_cast<size_t>(ndim));
  for (int i = 0; i < ndim; ++i) {
    const int64_t bytes = array->strides[i];
    if ((bytes & (element - 1)) != 0 && array->dimensions[i] > 1) {
      return refuse(kInvalidArgumentError, where,
                    "found a NumPy array with a stride of " + std::to_string(bytes) +
                        " bytes, wanted a multiple of its element's " + std::to_string(element) +
                        "; pass numpy.ascontiguousarray(…)");
    }
    strides[i] = bytes >> shift;
  }
  if ((array->flags & Api::NPY_ARRAY_ALIGNED_) == 0) {
    return refuse(kInvalidArgumentError, where,
                  "found a misaligned NumPy array, wanted elements at multiples of their size; "
                  "pass a copy");
  }
  *out = {array->data,
          {OPDOCK_CPU, 0},
          ndim,
          type,
          const_cast<int64_t*>(array->dimensions),
          strides,
          0};
  remember(array->descr, type);
  *read_only = (array->flags & Api::NPY_ARRAY_WRITEABLE_) == 0;
  return true;
}

namespace {

bool probe_layout() {
  try {
    // This array has no default value for offset, strides, dtype and flags.
    py::module_ numpy = py::module_::import("numpy");
    py::object whole =
        numpy.attr("arange")(60, py::arg("dtype") = "int16").attr("reshape")(3, 4, 5);
    py::object part = whole[py::make_tuple(py::slice(0, 3, 2), 1, py::slice(1, 5, 1))];
    part.attr("flags").attr("writeable") = false;
    const Array* array = reinterpret_cast<const Array*>(part.ptr());
    const Descriptor* descriptor = reinterpret_cast<const Descriptor*>(array->descr);
    py::dict said = part.attr("__array_interface__");
    return array->nd == 2 && array->dimensions[0] == 2 && array->dimensions[1] == 4 &&
           array->strides[0] == 80 && array->strides[1] == 2 &&
           reinterpret_cast<uintptr_t>(array->data) ==
               py::tuple(said["data"])[0].cast<uintptr_t>() &&
           array->descr == part.attr("dtype").ptr() &&
           descriptor->type_num == part.attr("dtype").attr("num").cast<int>() &&
           descriptor->byteorder == '=' && (array->flags & Api::NPY_ARRAY_ALIGNED_) != 0 &&
           (array->flags & Api::NPY_ARRAY_WRITEABLE_) == 0;
  } catch (const std::exception&) {
    PyErr_Clear();
    return false;
  }
}

}  // namespace

bool numpy_layout_holds() {
  // A static initialiser would deadlock: NumPy releases the GIL during the probe, and a thread that
  // then waited for the initialiser while holding the GIL would wait for ever. Probing twice is
  // harmless.
  static std::atomic<int> known{-1};
  int holds = known.load(std::memory_order_relaxed);
  if (holds < 0) {
    holds = probe_layout() ? 1 : 0;
    known.store(holds, std::memory_order_relaxed);
  }
  return holds == 1;
}

bool numpy_dtype(PyObject* descriptor, opdock_dtype* type, uint8_t* shift) {
  const NumpyDtype& slot = dtype_slot(descriptor);
  if (slot.descriptor != descriptor) {
    if (!numpy_layout_holds() ||
        !PyObject_TypeCheck(descriptor,
                            reinterpret_cast<PyTypeObject*>(Api::get().PyArrayDescr_Type_))) {
      return false;
    }
    const Descriptor* const known = reinterpret_cast<const Descriptor*>(descriptor);
    const opdock_dtype found = dtype_of(known);
    if (found.bits == 0 || known->byteorder == '>') return false;
    remember(descriptor, found);
  }
  *type = slot.type;
  *shift = slot.shift;
  return true;
}

namespace {

constexpr uint64_t kAlignment = 16;  // of NumPy's allocations, as of malloc's

// Returns an array of bytes with enough room for the output at its alignment; sets *data to the
// aligned address.
py::object aligned_bytes(const opdock_output& output, void** data) {
  uint64_t bytes = (uint64_t{output.dtype.bits} * output.dtype.lanes + 7) / 8;
  for (int32_t i = 0; i < output.ndim; ++i) bytes *= static_cast<uint64_t>(output.shape[i]);
  py::array_t<uint8_t> whole(static_cast<py::ssize_t>(bytes + output.alignment));
  const uintptr_t address = reinterpret_cast<uintptr_t>(whole.mutable_data());
  *data = reinterpret_cast<void*>((address + output.alignment - 1) & ~(output.alignment - 1));
  return whole;
}

}  // namespace

PyObject* numpy_new(const opdock_output& output, void** data) {
  try {
    py::object whole;
    *data = nullptr;
    if (output.alignment > kAlignment) whole = aligned_bytes(output, data);
    const Api& api = Api::get();
    PyObject* descriptor = nullptr;
    const int number = type_number(output.dtype);
    if (number >= 0 && output.dtype.lanes == 1) {
      descriptor = api.PyArray_DescrFromType_(number);
    } else {
      for (const opdock::detail::DtypeName& known : opdock::detail::kDtypeNames) {
        if (known.code != output.dtype.code || known.bits != output.dtype.bits) continue;
        if (!is_added(known.code, known.bits)) continue;
        py::object scalar = py::module_::import("ml_dtypes").attr(known.name);
        descriptor = py::module_::import("numpy").attr("dtype")(scalar).release().ptr();
      }
    }
    if (descriptor == nullptr) {
      raise("UnsupportedError", "found a result of DLPack dtype (code " +
                                    std::to_string(output.dtype.code) + ", bits " +
                                    std::to_string(output.dtype.bits) +
                                    "), wanted one NumPy has; pass torch tensors");
      return nullptr;
    }
    PyObject* array = api.PyArray_NewFromDescr_(
        api.PyArray_Type_, descriptor, output.ndim, output.shape, nullptr, *data,
        *data == nullptr ? 0 : Api::NPY_ARRAY_ALIGNED_ | Api::NPY_ARRAY_WRITEABLE_, nullptr);
    if (array == nullptr) return nullptr;
    if (whole && api.PyArray_SetBaseObject_(array, whole.release().ptr()) != 0) {
      Py_DECREF(array);
      return nullptr;
    }
    *data = reinterpret_cast<Array*>(array)->data;
    return array;
  } catch (py::error_already_set& error) {
    error.restore();
    return nullptr;
  } catch (const std::exception& error) {
    raise(kInternalError, error.what());
    return nullptr;
  }
}

}  // namespace opdock::python
