// SPDX-License-Identifier: Apache-2.0
#include "results.h"

#include <string>

#include "errors.h"
#include "opdock/overlap.hpp"

namespace opdock::python {

namespace {

bool is_compact(const opdock_output& output) {
  if (!views::has_elements(output.ndim, output.shape)) return true;
  int64_t step = 1;
  for (int32_t i = output.ndim - 1; i >= 0; --i) {
    if (output.shape[i] > 1 && output.strides[i] != step) return false;
    step *= output.shape[i];
  }
  return true;
}

void keep_message(void* context, const char* kind, const char* message) {
  // The first line; the rest is a trace of the library's own code.
  const std::string text = message == nullptr ? "" : message;
  *static_cast<std::string*>(context) =
      std::string(kind == nullptr ? "" : kind) + ": " + text.substr(0, text.find('\n'));
}

bool allocate_by_exchange(const Frame& frame, const opdock_output& output, Result* result) {
  opdock_output wanted = output;
  opdock_tensor prototype = {
      nullptr, frame.device, output.ndim, output.dtype, wanted.shape, nullptr, 0};
  std::string problem;
  const DlpackExchange& api = *frame.model_entry->api;
  if (api.allocate(&prototype, &result->managed, &problem, keep_message) != 0) {
    result->managed = nullptr;
    if (PyErr_Occurred() != nullptr) problem = take_error_text();
    raise("OutOfMemoryError", "found no memory for a result (" + problem + ")");
    return false;
  }
  result->tensor = result->managed->tensor;
  return true;
}

// Calls a helper of the package with (shape, strides, dtype, the array that results look like).
PyObject* call_empty(const Frame& frame, const opdock_output& output, const char* module,
                     const char* function) {
  PyObject* shape = PyTuple_New(output.ndim);
  PyObject* strides = PyTuple_New(output.ndim);
  for (int32_t i = 0; i < output.ndim; ++i) {
    PyTuple_SET_ITEM(shape, i, PyLong_FromLongLong(output.shape[i]));
    PyTuple_SET_ITEM(strides, i, PyLong_FromLongLong(output.strides[i]));
  }
  PyObject* helper = PyImport_ImportModule(module);
  PyObject* made = helper == nullptr
                       ? nullptr
                       : PyObject_CallMethod(helper, function, "OO(iii)O", shape, strides,
                                             int{output.dtype.code}, int{output.dtype.bits},
                                             int{output.dtype.lanes}, frame.model);
  Py_XDECREF(helper);
  Py_XDECREF(shape);
  Py_XDECREF(strides);
  return made;
}

// torch.empty_strided, for results that are not in row-major order.
bool allocate_by_torch(const Frame& frame, const opdock_output& output, Result* result) {
  result->object = call_empty(frame, output, "opdock._torch", "empty_strided");
  if (result->object == nullptr) return false;
  return frame.model_entry->api->borrow(result->object, &result->tensor) == 0;
}

// From CuPy's pool. Memory of the host's would be given back on the stream of the call, which may
// have been destroyed before the array is.
bool allocate_by_cupy(const Frame& frame, const opdock_output& output, Result* result) {
  PyObject* made = call_empty(frame, output, "opdock._import", "empty_cupy");
  if (made == nullptr) return false;
  result->object = Py_NewRef(PyTuple_GET_ITEM(made, 0));
  void* data = PyLong_AsVoidPtr(PyTuple_GET_ITEM(made, 1));
  Py_DECREF(made);
  opdock_output& kept = const_cast<opdock_output&>(output);  // the plan outlives the result
  result->tensor = {data, frame.device, output.ndim, output.dtype, kept.shape, kept.strides, 0};
  return PyErr_Occurred() == nullptr;
}

// The library's own from_dlpack, for arrays of the type of `model`.
PyObject* from_dlpack_of(PyObject* model) {
  PyObject* helper = PyImport_ImportModule("opdock._import");
  PyObject* found =
      helper == nullptr ? nullptr : PyObject_CallMethod(helper, "from_dlpack_of", "O", model);
  Py_XDECREF(helper);
  return found;
}

bool is_numpy_result(const Frame& frame) {
  return frame.model_entry == nullptr || frame.model_entry->kind == ArrayKind::kNumpy;
}

}  // namespace

bool results_from_host(const Frame& frame) {
  if (frame.model_entry == nullptr) return false;
  if (frame.model_entry->is_cupy) return false;
  return frame.model_entry->kind == ArrayKind::kDlpack ||
         (frame.model_entry->kind == ArrayKind::kTorch && frame.model_entry->api == nullptr);
}

bool allocate_result(const Frame& frame, const opdock_output& output, Result* result) {
  *result = {};
  if (is_numpy_result(frame)) {
    void* data = nullptr;
    result->object = numpy_new(output, &data);
    opdock_output& kept = const_cast<opdock_output&>(output);  // the plan outlives the result
    result->tensor = {data, {OPDOCK_CPU, 0}, output.ndim, output.dtype, kept.shape, kept.strides,
                      0};
    return result->object != nullptr;
  }
  if (frame.model_entry->is_cupy) return allocate_by_cupy(frame, output, result);
  if (!is_compact(output) && frame.model_entry->kind == ArrayKind::kTorch) {
    return allocate_by_torch(frame, output, result);
  }
  return allocate_by_exchange(frame, output, result);
}

PyObject* finish_result(const Frame& frame, Result* result) {
  PyObject* object = result->object;
  if (result->managed != nullptr) {
    void* made = nullptr;
    if (frame.model_entry->api->to_python(result->managed, &made) != 0) return nullptr;
    result->managed = nullptr;
    object = static_cast<PyObject*>(made);
  } else if (result->host != nullptr) {
    PyObject* carrier = export_host_tensor(result->host);
    if (carrier == nullptr) return nullptr;
    result->host = nullptr;
    PyObject* import = from_dlpack_of(frame.model);
    object = import == nullptr ? nullptr : PyObject_CallOneArg(import, carrier);
    Py_XDECREF(import);
    Py_DECREF(carrier);
  }
  result->object = nullptr;
  return object;
}

void drop_result(Result* result) {
  Py_XDECREF(result->object);
  if (result->managed != nullptr && result->managed->deleter != nullptr) {
    result->managed->deleter(result->managed);
  }
  opdock_tensor_free(result->host);
  *result = {};
}

}  // namespace opdock::python
