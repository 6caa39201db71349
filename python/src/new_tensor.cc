// SPDX-License-Identifier: Apache-2.0
#include "new_tensor.h"

#include <exception>
#include <string>
#include <utility>

#include "cupy_array.h"
#include "errors.h"
#include "imports.h"
#include "torch_library.h"

namespace opdock::python {

namespace {

void keep_message(void* context, const char* kind, const char* message) {
  // Only the first line: the rest is a trace of the library's code.
  const std::string text = message == nullptr ? "" : message;
  *static_cast<std::string*>(context) =
      std::string(kind == nullptr ? "" : kind) + ": " + text.substr(0, text.find('\n'));
}

bool allocate_by_torch(const Frame& frame, const opdock_output& output, Result* result) {
  result->torch = torch_memory.allocate(&output, &frame.device, &result->tensor);
  if (result->torch == nullptr)
    raise("OutOfMemoryError", "found no memory for a result in torch's allocator");
  return result->torch != nullptr;
}

// Returns the Python object of a tensor that torch has allocated, or NULL with an error set.
PyObject* wrap_torch(AtenTensorOpaque* tensor) {
  try {
    return torch_memory.wrap(tensor);
  } catch (const std::exception& problem) {
    raise(kInternalError, std::string("found no Python object for a tensor of torch (") +
                              problem.what() + "), wanted one; please report this");
    return nullptr;
  }
}

bool allocate_by_exchange(const Frame& frame, const opdock_output& output, Result* result) {
  opdock_output wanted = output;
  opdock_tensor prototype = {
      nullptr, frame.device, output.ndim, output.dtype, wanted.shape, nullptr, 0};
  std::string problem;
  const DlpackExchange& api = *frame.model_entry->api;
  if (api.allocate(&prototype, &result->managed, &problem, keep_message) != 0) {
    result->managed = nullptr;
    if (is_passed_on()) return false;
    if (PyErr_Occurred() != nullptr) problem = take_error_text();
    raise("OutOfMemoryError", "found no memory for a result (" + problem + ")");
    return false;
  }
  result->tensor = result->managed->tensor;
  return true;
}

// Returns a contiguous tensor for memory that a Python library allocated.
opdock_tensor tensor_of(Frame& frame, const opdock_output& output, void* data,
                        opdock_device device) {
  int64_t* strides = frame.take<int64_t>(static_cast<size_t>(output.ndim) + 1);
  int64_t stride = 1;
  for (int32_t i = output.ndim - 1; i >= 0; --i) {
    strides[i] = stride;
    // If one size is 0, the others may have any value and the product may overflow; strides do not
    // matter then.
    if (__builtin_mul_overflow(stride, output.shape[i] > 1 ? output.shape[i] : 1, &stride)) {
      stride = 1;
    }
  }
  return {data, device, output.ndim, output.dtype, const_cast<int64_t*>(output.shape), strides, 0};
}

// Allocates the result from CuPy. Memory that libopdock allocated would be freed on the call's
// stream, which may have been destroyed by then.
bool allocate_by_cupy(Frame& frame, const opdock_output& output, Result* result) {
  void* data = nullptr;
  result->object = cupy_new(frame.model, output, frame.device, &data);
  if (result->object == nullptr) return false;
  result->tensor = tensor_of(frame, output, data, frame.device);
  if (output.alignment <= 1 || reinterpret_cast<uintptr_t>(data) % output.alignment == 0)
    return true;
  Py_CLEAR(result->object);
  raise("UnsupportedError", "found memory of CuPy's that is not aligned to " +
                                std::to_string(output.alignment) +
                                " bytes, wanted by the op; pass torch tensors");
  return false;
}

// Returns the from_dlpack function of the library of `model`; a new reference.
PyObject* from_dlpack_of(PyObject* model) {
  static PyObject* slot = nullptr;
  PyObject* find = imported("opdock._import", "from_dlpack_of", &slot);
  return find == nullptr ? nullptr : PyObject_CallOneArg(find, model);
}

// Alignment of memory that libraries allocate by the exchange table, on any device.
constexpr uint64_t kLibrariesAlignment = 64;

bool is_numpy_result(const Frame& frame) {
  return frame.model_entry == nullptr || frame.model_entry->kind == ArrayKind::kNumpy;
}

}  // namespace

bool wants_alignment(const Frame& frame, const opdock_plan& plan) {
  if (is_numpy_result(frame) || frame.model_entry->is_cupy) return false;
  for (uint32_t i = 0; i < plan.num_outputs; ++i) {
    if (plan.outputs[i].alignment > kLibrariesAlignment) return true;
  }
  return false;
}

bool results_from_host(const Frame& frame) {
  if (frame.model_entry == nullptr) return false;
  if (frame.model_entry->is_cupy) return false;
  return frame.model_entry->kind == ArrayKind::kDlpack ||
         (frame.model_entry->kind == ArrayKind::kTorch && frame.model_entry->api == nullptr);
}

bool allocate_result(Frame& frame, const opdock_output& output, Result* result) {
  *result = {};
  if (is_numpy_result(frame)) {
    void* data = nullptr;
    result->object = numpy_new(output, &data);
    if (result->object == nullptr) return false;
    result->tensor = tensor_of(frame, output, data, {OPDOCK_CPU, 0});
    return true;
  }
  if (frame.model_entry->is_cupy) return allocate_by_cupy(frame, output, result);
  return frame.model_entry->kind == ArrayKind::kTorch && torch_memory.wrap != nullptr
             ? allocate_by_torch(frame, output, result)
             : allocate_by_exchange(frame, output, result);
}

void free_tensor(opdock_tensor* tensor) {
  opdock_value value{};
  value.tag = OPDOCK_TAG_TENSOR;
  value.flags = OPDOCK_VALUE_OWNED;
  value.as.tensor = tensor;
  if (tensor != nullptr) opdock_value_free(&value);
}

PyObject* finish_result(const Frame& frame, Result* result) {
  PyObject* object = result->object;
  if (result->torch != nullptr) {
    object = wrap_torch(result->torch);
    if (object == nullptr) return nullptr;
    torch_memory.release(std::exchange(result->torch, nullptr));
  } else if (result->managed != nullptr) {
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
  if (result->torch != nullptr) torch_memory.release(result->torch);
  free_tensor(result->host);
  *result = {};
}

}  // namespace opdock::python
