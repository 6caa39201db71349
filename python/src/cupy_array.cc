// SPDX-License-Identifier: Apache-2.0
#include "cupy_array.h"

#include "errors.h"
#include "imports.h"
#include "tensor.h"

namespace opdock::python {

namespace {

// Interned names of the attributes that are read.
struct Names {
  PyObject* data = PyUnicode_InternFromString("data");
  PyObject* ptr = PyUnicode_InternFromString("ptr");
  PyObject* device_id = PyUnicode_InternFromString("device_id");
  PyObject* dtype = PyUnicode_InternFromString("dtype");
  PyObject* shape = PyUnicode_InternFromString("shape");
  PyObject* strides = PyUnicode_InternFromString("strides");
  PyObject* get_device = PyUnicode_InternFromString("getDevice");
};
const Names& names() {
  static const Names& all = *new Names;
  return all;
}

// Returns the outcome after an attribute could not be read: kError if the Python error set, such as
// KeyboardInterrupt, is not the array's fault; otherwise clears the error.
Read not_read() {
  if (PyErr_Occurred() != nullptr && PyErr_ExceptionMatches(PyExc_Exception) == 0)
    return Read::kError;
  PyErr_Clear();
  return Read::kNotPlain;
}

bool read_number(PyObject* object, PyObject* name, long long* out) {
  PyObject* number = PyObject_GetAttr(object, name);
  if (number == nullptr) return false;
  *out = PyLong_CheckExact(number) ? PyLong_AsLongLong(number) : -1;
  const bool ok = PyLong_CheckExact(number) && (*out != -1 || PyErr_Occurred() == nullptr);
  Py_DECREF(number);
  return ok;
}

// Reads a tuple of ints into memory of the frame. Also returns false if it has more than *ndim
// elements.
bool read_numbers(Frame& frame, PyObject* object, PyObject* name, Py_ssize_t* ndim, int64_t** out) {
  PyObject* tuple = PyObject_GetAttr(object, name);
  if (tuple == nullptr) return false;
  bool ok = PyTuple_CheckExact(tuple) && PyTuple_GET_SIZE(tuple) <= *ndim;
  if (ok) {
    *ndim = PyTuple_GET_SIZE(tuple);
    *out = frame.take<int64_t>(static_cast<size_t>(*ndim) + 1);
  }
  for (Py_ssize_t i = 0; ok && i < *ndim; ++i) {
    PyObject* const number = PyTuple_GET_ITEM(tuple, i);
    ok = PyLong_CheckExact(number);
    if (ok) (*out)[i] = PyLong_AsLongLong(number);
    ok = ok && ((*out)[i] != -1 || PyErr_Occurred() == nullptr);
  }
  Py_DECREF(tuple);
  return ok;
}

// Reads the array's dtype; an element takes 1 << *shift bytes.
bool read_dtype(PyObject* object, opdock_dtype* out, uint8_t* shift) {
  PyObject* descriptor = PyObject_GetAttr(object, names().dtype);
  if (descriptor == nullptr) return false;
  const bool known = numpy_dtype(descriptor, out, shift);
  Py_DECREF(descriptor);
  return known;
}

// Returns the array's dtype object if it means `wanted`: a new reference, or NULL without an error
// set.
PyObject* dtype_if(PyObject* array, opdock_dtype wanted) {
  PyObject* descriptor = PyObject_GetAttr(array, names().dtype);
  opdock_dtype found = {};
  uint8_t shift = 0;
  if (descriptor != nullptr && numpy_dtype(descriptor, &found, &shift) &&
      found.code == wanted.code && found.bits == wanted.bits && found.lanes == wanted.lanes) {
    return descriptor;
  }
  Py_XDECREF(descriptor);
  PyErr_Clear();
  return nullptr;
}

// Returns cupy.cuda.runtime, which is a module or an attribute; borrowed, or NULL with an error
// set.
PyObject* cupy_runtime() {
  static PyObject* slot = nullptr;
  return imported("cupy.cuda", "runtime", &slot);
}

// Returns whether this device is CuPy's current one, on which it allocates.
bool is_current(opdock_device device) {
  PyObject* runtime = cupy_runtime();
  PyObject* number =
      runtime == nullptr ? nullptr : PyObject_CallMethodNoArgs(runtime, names().get_device);
  const bool same =
      number != nullptr && PyLong_CheckExact(number) && PyLong_AsLongLong(number) == device.index;
  Py_XDECREF(number);
  PyErr_Clear();
  return same;
}

PyObject* make_shape(const opdock_output& output) {
  PyObject* shape = PyTuple_New(output.ndim);
  for (int32_t i = 0; shape != nullptr && i < output.ndim; ++i) {
    PyObject* const size = PyLong_FromLongLong(output.shape[i]);
    if (size == nullptr) Py_CLEAR(shape);
    if (size != nullptr) PyTuple_SET_ITEM(shape, i, size);
  }
  return shape;
}

}  // namespace

int32_t cupy_device_type() {
  PyObject* runtime = cupy_runtime();
  PyObject* is_hip = runtime == nullptr ? nullptr : PyObject_GetAttrString(runtime, "is_hip");
  const int32_t type = is_hip == Py_True    ? OPDOCK_ROCM
                       : is_hip == Py_False ? OPDOCK_CUDA
                                            : OPDOCK_CPU;
  Py_XDECREF(is_hip);
  PyErr_Clear();
  return type;
}

Read cupy_address(PyObject* object, int32_t type, opdock_tensor* tensor) {
  PyObject* data = PyObject_GetAttr(object, names().data);
  if (data == nullptr) return not_read();
  long long address = 0, device = -1;
  const bool ok = read_number(data, names().ptr, &address) &&
                  read_number(data, names().device_id, &device) && device >= 0 &&
                  device <= INT32_MAX;
  Py_DECREF(data);
  if (!ok) return not_read();
  *tensor = {reinterpret_cast<void*>(address),
             {type, static_cast<int32_t>(device)},
             0,
             {OPDOCK_DTYPE_UINT, 8, 1},
             nullptr,
             nullptr,
             0};
  return Read::kDone;
}

Read cupy_layout(Frame& frame, PyObject* object, opdock_tensor* tensor) {
  Py_ssize_t ndim = OPDOCK_MAX_NDIM;
  uint8_t shift = 0;
  if (!read_dtype(object, &tensor->dtype, &shift) ||
      !read_numbers(frame, object, names().shape, &ndim, &tensor->shape)) {
    return not_read();
  }
  Py_ssize_t num_strides = ndim;
  int64_t odd = 0;
  if (!read_numbers(frame, object, names().strides, &num_strides, &tensor->strides) ||
      num_strides != ndim) {
    return not_read();
  }
  for (Py_ssize_t i = 0; i < ndim; ++i) {  // CuPy's strides are in bytes
    odd |= tensor->strides[i];
    tensor->strides[i] >>= shift;
  }
  if ((odd & ((int64_t{1} << shift) - 1)) != 0) return Read::kNotPlain;
  tensor->ndim = static_cast<int32_t>(ndim);
  return Read::kDone;
}

bool cupy_current_stream(int32_t device, void** out) {
  static PyObject* slot = nullptr;
  PyObject* get = imported("cupy.cuda", "get_current_stream", &slot);
  PyObject* index = get == nullptr ? nullptr : PyLong_FromLong(device);
  PyObject* stream = index == nullptr ? nullptr : PyObject_CallOneArg(get, index);
  Py_XDECREF(index);
  if (stream == nullptr && get != nullptr && PyErr_ExceptionMatches(PyExc_TypeError)) {
    PyErr_Clear();
    stream = PyObject_CallNoArgs(get);  // before CuPy 13: only for the current device
  }
  PyObject* address = stream == nullptr ? nullptr : PyObject_GetAttr(stream, names().ptr);
  if (address != nullptr) *out = PyLong_AsVoidPtr(address);
  Py_XDECREF(stream);
  Py_XDECREF(address);
  return PyErr_Occurred() == nullptr;
}

PyObject* cupy_new(PyObject* model, const opdock_output& output, opdock_device device,
                   void** data) {
  PyObject* shape = make_shape(output);
  if (shape == nullptr) return nullptr;
  PyObject *array = nullptr, *dtype = dtype_if(model, output.dtype);
  if (dtype != nullptr && is_current(device)) {
    static PyObject* slot = nullptr;
    PyObject* type = imported("cupy", "ndarray", &slot);
    PyObject* args[] = {shape, dtype};
    array = type == nullptr ? nullptr : PyObject_Vectorcall(type, args, 2, nullptr);
  } else {
    static PyObject* slot = nullptr;
    PyObject* empty = imported("opdock._import", "empty_cupy", &slot);
    array = empty == nullptr
                ? nullptr
                : PyObject_CallFunction(empty, "O(iii)O", shape, int{output.dtype.code},
                                        int{output.dtype.bits}, int{output.dtype.lanes}, model);
  }
  Py_DECREF(shape);
  Py_XDECREF(dtype);
  opdock_tensor tensor = {};
  if (array == nullptr || cupy_address(array, device.type, &tensor) == Read::kDone) {
    *data = tensor.data;
    return array;
  }
  Py_DECREF(array);
  if (PyErr_Occurred() == nullptr)
    raise(kInternalError, "found an array of CuPy's without data.ptr, wanted one that has it");
  return nullptr;
}

}  // namespace opdock::python
