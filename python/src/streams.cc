// SPDX-License-Identifier: Apache-2.0
#include "streams.h"

#include <dlfcn.h>
#include <link.h>

#include <string_view>

#include "errors.h"
#include "opdock/types.hpp"

namespace opdock::python {

namespace {

// Returns a function of a library that is already loaded, or NULL.
template <typename Function>
Function* find(void* library, const char* name) {
  return library == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(library, name));
}

opdock_status status_of_wait(int error, const char* name, std::string* problem) {
  if (error == 0) return OPDOCK_OK;
  *problem = "waiting for the device failed: found " +
             std::string(name == nullptr ? "error" : name) + " (" + std::to_string(error) + ")";
  if (!loses_device(error)) return OPDOCK_DEVICE_ERROR;
  *problem += ", wanted work that succeeds; the device is of no more use to this process";
  return OPDOCK_DEVICE_LOST;
}

opdock_status wait_cuda(int32_t device, void* stream, std::string* problem) {
  static void* const library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  static auto* const retain = find<int(void**, int)>(library, "cuDevicePrimaryCtxRetain");
  static auto* const release = find<int(int)>(library, "cuDevicePrimaryCtxRelease_v2");
  static auto* const push = find<int(void*)>(library, "cuCtxPushCurrent_v2");
  static auto* const pop = find<int(void**)>(library, "cuCtxPopCurrent_v2");
  static auto* const wait = find<int(void*)>(library, "cuStreamSynchronize");
  static auto* const name_of = find<int(int, const char**)>(library, "cuGetErrorName");
  if (!retain || !release || !push || !pop || !wait) {
    *problem = "found no CUDA driver in the process, wanted the one that made the arrays";
    return OPDOCK_DEVICE_ERROR;
  }
  // The default stream is that of the primary context, which may not be current in this thread.
  void* context = nullptr;
  int error = retain(&context, device);
  if (error == 0) {
    error = push(context);
    if (error == 0) {
      error = wait(stream);
      void* popped = nullptr;
      pop(&popped);
    }
    release(device);
  }
  const char* name = nullptr;
  if (error != 0 && name_of) name_of(error, &name);
  return status_of_wait(error, name, problem);
}

// Returns the loaded HIP library. torch's wheels contain a copy under another name.
void* loaded_hip() {
  std::string path;
  const auto look = [](dl_phdr_info* library, size_t, void* context) {
    const std::string_view path = library->dlpi_name == nullptr ? "" : library->dlpi_name;
    const std::string_view name = path.substr(path.rfind('/') + 1);
    if (!name.starts_with("libamdhip64.so") && !name.starts_with("libamdhip64-")) return 0;
    *static_cast<std::string*>(context) = path;
    return 1;
  };
  dl_iterate_phdr(look, &path);
  return path.empty() ? nullptr : dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
}

opdock_status wait_rocm(int32_t device, void* stream, std::string* problem) {
  static void* const library = loaded_hip();
  static auto* const get = find<int(int*)>(library, "hipGetDevice");
  static auto* const set = find<int(int)>(library, "hipSetDevice");
  static auto* const wait = find<int(void*)>(library, "hipStreamSynchronize");
  static auto* const name_of = find<const char*(int)>(library, "hipGetErrorName");
  if (!get || !set || !wait) {
    *problem = "found no HIP runtime in the process, wanted the one that made the arrays";
    return OPDOCK_DEVICE_ERROR;
  }
  int before = 0;
  int error = get(&before);
  if (error == 0) error = set(device);
  if (error == 0) error = wait(stream);
  set(before);
  return status_of_wait(error, error != 0 && name_of ? name_of(error) : nullptr, problem);
}

}  // namespace

bool stream_address(PyObject* object, void** out) {
  PyObject* number = nullptr;
  if (PyLong_CheckExact(object)) {
    number = Py_NewRef(object);
  } else if (PyObject* pair = PyObject_CallMethod(object, "__cuda_stream__", nullptr)) {
    number = PySequence_GetItem(pair, 1);  // (version, address)
    Py_DECREF(pair);
  } else {
    for (const char* name : {"cuda_stream", "ptr"}) {  // torch, CuPy
      clear_error();
      if (PyErr_Occurred() != nullptr) return false;
      number = PyObject_GetAttrString(object, name);
      if (number != nullptr) break;
    }
  }
  const bool is_number = number != nullptr && PyLong_CheckExact(number);
  if (is_number) *out = PyLong_AsVoidPtr(number);
  Py_XDECREF(number);
  const bool ok = is_number && PyErr_Occurred() == nullptr;
  clear_error();
  return ok;
}

PyObject* protocol_stream(int32_t device_type, void* stream, bool own) {
  if (own) return PyLong_FromLong(-1);
  // CUDA's default stream is 1 in the protocol, where 0 is forbidden; ROCm's is 0.
  if (stream == nullptr) return PyLong_FromLong(device_type == OPDOCK_CUDA ? 1 : 0);
  return PyLong_FromVoidPtr(stream);
}

opdock_status wait_for_stream(opdock_device device, void* stream, std::string* problem) {
  return device.type == OPDOCK_CUDA ? wait_cuda(device.index, stream, problem)
                                    : wait_rocm(device.index, stream, problem);
}

}  // namespace opdock::python
