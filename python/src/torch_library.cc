// SPDX-License-Identifier: Apache-2.0
#include "torch_library.h"

#include <dlfcn.h>

#include <exception>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>

#include "errors.h"
#include "function.h"
#include "gil.h"
#include "hooks.h"
#include "tensor.h"
#include "torch_probe.h"

namespace py = pybind11;

namespace opdock::python {

namespace {

constexpr uint32_t kReasonSize = 1024;

// The library's functions; NULL until it is open.
decltype(&opdock_torch_connect) connect_library = nullptr;
decltype(&opdock_torch_set_layout) set_layout = nullptr;
decltype(&opdock_torch_thread_keys) get_thread_keys = nullptr;
decltype(&opdock_torch_implement) implement = nullptr;
decltype(&opdock_torch_schema) make_schema = nullptr;
decltype(&opdock_torch_open_recorder) open_recorder = nullptr;
decltype(&opdock_torch_use_recorder) use_recorder = nullptr;

// Registers the operators of gradients: a Python function, which lives until the process ends.
PyObject* gradient_finder = nullptr;

// The exception that a Python kernel has left, until its caller in C++ throws it.
thread_local PyObject* left_error = nullptr;

// A C++ exception that becomes Opdock's exception for a status. torch, like everything that is made
// with pybind11, has exceptions of this base set the Python error themselves.
class StatusError : public py::builtin_exception {
 public:
  StatusError(opdock_status status, const char* text)
      : py::builtin_exception(text), status_(status) {}
  void set_error() const override { raise_status(status_, what()); }

 private:
  opdock_status status_;
};

// A C++ exception for a Python exception.
class LeftError : public py::builtin_exception {
 public:
  explicit LeftError(PyObject* error)
      : py::builtin_exception("a Python exception"), error_(error) {}
  LeftError(const LeftError& other) : py::builtin_exception(other), error_(other.error_) {
    const Gil gil;
    Py_INCREF(error_);
  }
  LeftError& operator=(const LeftError&) = delete;
  ~LeftError() override {
    const Gil gil;
    Py_DECREF(error_);
  }
  void set_error() const override {
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error_)), error_);
  }

 private:
  PyObject* error_;
};

void throw_status(opdock_status status, const char* text) {
  throw StatusError(status, text);
}

void throw_left() {
  if (left_error != nullptr) throw LeftError(std::exchange(left_error, nullptr));
}

// See bridge.h.
bool leave(const std::exception_ptr& error) {
  const Gil gil;
  try {
    std::rethrow_exception(error);
  } catch (const py::builtin_exception& own) {
    own.set_error();
    const py::error_already_set fetched;
    Py_XDECREF(std::exchange(left_error, fetched.value().inc_ref().ptr()));
    return true;
  } catch (...) {
    return false;
  }
}

template <typename Function>
bool find(void* library, const char* name, Function* out) {
  *out = reinterpret_cast<Function>(dlsym(library, name));
  return *out != nullptr;
}

// See bridge.h.
opdock_function* find_gradient(const char* op, const char* gradient, const char* params,
                               const char** name) {
  const Gil gil;
  try {
    if (gradient_finder == nullptr) throw StatusError(OPDOCK_INTERNAL, "found no gradient finder");
    const auto found = py::handle(gradient_finder)(op, gradient, params).cast<py::tuple>();
    // The names of operators are few, and stay.
    static std::unordered_set<std::string>& names = *new std::unordered_set<std::string>;
    *name = names.insert(found[1].cast<std::string>()).first->c_str();
    const FunctionInfo* const info = function_info(found[0].ptr());
    if (info == nullptr) throw py::error_already_set();
    return info->handle;
  } catch (const py::error_already_set& error) {
    throw LeftError(error.value().inc_ref().ptr());
  }
}

// Returns the path of a file that lies beside libopdock.
std::string path_beside(const std::string& file) {
  Dl_info info = {};
  dladdr(reinterpret_cast<void*>(&opdock_version), &info);
  const std::string own = info.dli_fname == nullptr ? "" : info.dli_fname;
  return own.substr(0, own.rfind('/') + 1) + file;
}

// Finds the functions for results, all or none.
void find_memory(void* library) {
  void* const python = dlopen("libtorch_python.so", RTLD_LAZY | RTLD_NOLOAD);
  TorchMemory found;
  if (python != nullptr && find(library, "opdock_torch_allocate", &found.allocate) &&
      find(library, "opdock_torch_release", &found.release) &&
      find(python, "_Z16THPVariable_WrapRKN2at10TensorBaseE", &found.wrap))
    torch_memory = found;
}

// Opens the library; returns None, or why it cannot be used.
std::optional<std::string> open() {
  if (implement != nullptr) return std::nullopt;
  const std::string path = path_beside("libopdock_torch.so");
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return std::string(dlerror());
  if (!find(library, "opdock_torch_connect", &connect_library) ||
      !find(library, "opdock_torch_set_layout", &set_layout) ||
      !find(library, "opdock_torch_thread_keys", &get_thread_keys) ||
      !find(library, "opdock_torch_schema", &make_schema) ||
      !find(library, "opdock_torch_open_recorder", &open_recorder) ||
      !find(library, "opdock_torch_use_recorder", &use_recorder) ||
      !find(library, "opdock_torch_implement", &implement)) {
    implement = nullptr;
    return path + ": found a library of another version, wanted that of this package";
  }
  static const opdock_torch_python kPython = {sizeof(opdock_torch_python),
                                              0,
                                              throw_status,
                                              throw_left,
                                              torch_allows_tf32,
                                              torch_wants_deterministic,
                                              find_gradient,
                                              leave};
  char error[kReasonSize] = "";
  if (connect_library(&kPython, error, kReasonSize) == OPDOCK_OK) {
    find_memory(library);
    return std::nullopt;
  }
  implement = nullptr;
  return std::string(error);
}

}  // namespace

TorchMemory torch_memory;

void open_torch_library() {
  open();
}

void add_torch_library(py::module_& module) {
  module.def("torch_open_library", &open);
  module.def("torch_thread_keys", []() -> std::optional<std::pair<uint64_t, uint64_t>> {
    const uint64_t* const keys = get_thread_keys();
    if (keys == nullptr) return std::nullopt;
    return std::pair(keys[0], keys[1]);
  });
  module.def("torch_calibrate", [] {
    if (!torch_calibrate()) throw py::error_already_set();
  });
  // Returns whether operators may see plain tensors without Python from now on.
  module.def("torch_set_allowed_keys", [](uint64_t allowed) {
    const TorchProbe found = torch_probe_result();
    if (found.keys < 0 || found.grad < 0) return false;
    const opdock_torch_layout layout = {found.keys, found.grad, allowed};
    return set_layout(&layout, nullptr, 0) == OPDOCK_OK;
  });
  // Returns None, or why the library cannot implement the operator.
  module.def("torch_implement",
             [](const py::object& function, const std::string& name, bool is_guarded,
                bool is_formula) -> std::optional<std::string> {
               const FunctionInfo* info = function_info(function.ptr());
               if (info == nullptr) throw py::error_already_set();
               char error[kReasonSize] = "";
               const uint32_t flags = (is_guarded ? OPDOCK_TORCH_GUARDED : 0) |
                                      (is_formula ? OPDOCK_TORCH_FORMULA : 0);
               if (implement(info->handle, name.c_str(), flags, error, kReasonSize) == OPDOCK_OK)
                 return std::nullopt;
               return std::string(error);
             });
  // Opens the recorder that lies in `file` beside libopdock for this build of torch; returns None,
  // or why it cannot be used. finder(op, gradient or None, parameters or None): returns the
  // gradient's function and the name of its operator, see bridge.h.
  module.def("torch_open_recorder",
             [](const std::string& file, const std::string& build,
                const py::object& finder) -> std::optional<std::string> {
               char error[kReasonSize] = "";
               gradient_finder = finder.inc_ref().ptr();
               const std::string path = path_beside(file);
               if (open_recorder(path.c_str(), build.c_str(), error, kReasonSize) == OPDOCK_OK)
                 return std::nullopt;
               return std::string(error);
             });
  module.def("torch_use_recorder", [](bool wanted) { use_recorder(wanted ? 1 : 0); });
  module.def("torch_schema", [](const py::object& function, const std::string& name) {
    const FunctionInfo* info = function_info(function.ptr());
    if (info == nullptr) throw py::error_already_set();
    return std::string(make_schema(info->handle, name.c_str()));
  });
  // Leaves an exception to the C++ code that has called a Python kernel.
  module.def("torch_leave_error", [](const py::object& error) {
    Py_XDECREF(std::exchange(left_error, error.inc_ref().ptr()));
  });
  // Returns the exception that C++ code has left in this thread.
  module.def("torch_take_error",
             [] { return py::reinterpret_steal<py::object>(std::exchange(left_error, nullptr)); });
}

}  // namespace opdock::python
