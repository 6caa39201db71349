// The extension module opdock._opdock: its definition and the class Runtime.
// SPDX-License-Identifier: Apache-2.0
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <vector>

#include "check.h"
#include "compile.h"
#include "errors.h"
#include "function.h"
#include "function_shapes.h"
#include "generator.h"
#include "gil.h"
#include "hooks.h"
#include "new_tensor.h"
#include "object.h"
#include "opdock/formula.h"
#include "opdock/opdock.h"
#include "plain_arguments.h"
#include "tensor.h"
#include "torch_library.h"
#include "torch_probe.h"
#include "torch_recording.h"

namespace py = pybind11;

namespace opdock::python {

namespace {

py::handle function_type;

// Calls a function that writes a JSON text, as check() does; returns the text.
template <typename F>
std::string json(const F& f) {
  char* found = nullptr;
  check([&](char* error, uint32_t size) { return f(&found, error, size); });
  std::string text(found);
  opdock_free(found);
  return text;
}

const char* c_str(const std::optional<std::string>& text) {
  return text.has_value() ? text->c_str() : nullptr;
}

class Runtime {
 public:
  Runtime(const std::optional<std::string>& plugin_path,
          const std::optional<std::string>& package_path, uint32_t num_threads,
          const std::optional<std::string>& build, const std::optional<std::string>& jit,
          const std::optional<std::string>& fallback, bool diagnose) {
    opdock_options options = {};
    options.struct_size = sizeof options;
    options.flags = diagnose ? OPDOCK_OPTIONS_DIAGNOSE : 0;
    options.plugin_path = c_str(plugin_path);
    options.package_path = c_str(package_path);
    options.num_threads = num_threads;
    options.build = c_str(build);
    options.jit = c_str(jit);
    options.fallback = c_str(fallback);
    set_hooks(&options);
    check([&](char* error, uint32_t size) {
      return opdock_runtime_create(&options, &handle_, error, size);
    });
  }
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  ~Runtime() { opdock_runtime_destroy(handle_); }

  std::string list(bool rescan) const {
    return json([&](char** out, char* error, uint32_t size) {
      return opdock_list_json(handle_, rescan ? 1 : 0, out, error, size);
    });
  }
  std::string inspect(const std::string& path) const {
    return json([&](char** out, char* error, uint32_t size) {
      return opdock_inspect_json(handle_, path.c_str(), out, error, size);
    });
  }
  std::string survey(const std::string& request) const {
    return json([&](char** out, char* error, uint32_t size) {
      return opdock_survey_json(handle_, request.c_str(), out, error, size);
    });
  }
  std::string inspect_diff(const std::string& a, const std::string& b) const {
    return json([&](char** out, char* error, uint32_t size) {
      return opdock_inspect_diff_json(handle_, a.c_str(), b.c_str(), out, error, size);
    });
  }
  std::string explain(const std::string& name) const {
    return json([&](char** out, char* error, uint32_t size) {
      return opdock_explain_json(handle_, name.c_str(), out, error, size);
    });
  }
  // Uses the low 64 bits of the seed.
  void manual_seed(const py::object& seed) const {
    uint64_t bits = 0;
    if (!to_bits(seed.ptr(), &bits)) {
      raise(kArgumentError, "manual_seed(): argument 'seed': found an object of type " +
                                type_name(seed.ptr()) + ", wanted an int");
      throw py::error_already_set();
    }
    check(
        [&](char* error, uint32_t size) { return opdock_manual_seed(handle_, bits, error, size); });
  }
  std::string doctor() const {
    return json([&](char** out, char* error, uint32_t size) {
      return opdock_doctor_json(handle_, out, error, size);
    });
  }
  // Blocks while the compilers run. hooks.cc checks for Ctrl-C.
  std::string build(const std::string& path, const std::string& options) const {
    std::string text = json([&](char** out, char* error, uint32_t size) {
      return opdock_build_json(handle_, path.c_str(), options.c_str(), out, error, size);
    });
    // libopdock reports a build that a hook cancelled as a failed one; raise the hook's error
    // instead.
    if (raise_kept_error()) throw py::error_already_set();
    return text;
  }
  std::string install(const std::string& path) const {
    return json([&](char** out, char* error, uint32_t size) {
      return opdock_install_json(handle_, path.c_str(), nullptr, out, error, size);
    });
  }
  opdock_runtime* handle() const { return handle_; }
  // gradients_of: names of parameters, separated by commas; none: the formula itself.
  opdock_function* formula(const std::string& text, const std::optional<std::string>& schema,
                           const std::optional<std::string>& gradients_of) const {
    opdock_function* made = nullptr;
    check([&](char* error, uint32_t size) {
      if (!gradients_of)
        return opdock_make_function(handle_, c_str(schema), text.c_str(), &made, error, size);
      return opdock_make_gradient(handle_, c_str(schema), text.c_str(), gradients_of->c_str(),
                                  &made, error, size);
    });
    return made;
  }
  opdock_function* evaluator(const std::string& formula, const std::string& schema) const {
    opdock_function* made = nullptr;
    check([&](char* error, uint32_t size) {
      return opdock_make_evaluator(handle_, schema.c_str(), formula.c_str(), &made, error, size);
    });
    return made;
  }
  opdock_function* function(const std::string& name) const {
    opdock_function* found = nullptr;
    check([&](char* error, uint32_t size) {
      return opdock_get_function(handle_, name.c_str(), &found, error, size);
    });
    return found;
  }

 private:
  opdock_runtime* handle_ = nullptr;
};

py::object get_function(const py::object& runtime, const std::string& name) {
  opdock_function* handle = runtime.cast<const Runtime&>().function(name);
  PyObject* function = make_function(function_type.ptr(), runtime.ptr(), handle, name);
  if (function == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(function);
}

py::object make_formula(const py::object& runtime, const std::string& text,
                        const std::optional<std::string>& schema,
                        const std::optional<std::string>& gradients_of,
                        const py::object& recorder) {
  opdock_function* handle = runtime.cast<const Runtime&>().formula(text, schema, gradients_of);
  PyObject* function =
      make_function(function_type.ptr(), runtime.ptr(), handle, opdock_describe(handle)->name);
  if (function == nullptr) throw py::error_already_set();
  if (!recorder.is_none()) set_recorder(function, recorder.ptr());
  return py::reinterpret_steal<py::object>(function);
}

// Returns a function that evaluates the formula of an op's function in float64. schema: that of the
// op, with fresh results.
py::object make_evaluator(const py::object& runtime, const py::object& function,
                          const std::string& schema) {
  const FunctionInfo* info = function_info(function.ptr());
  if (info == nullptr) throw py::error_already_set();
  opdock_function* handle =
      runtime.cast<const Runtime&>().evaluator(opdock_function_formula(info->handle), schema);
  PyObject* made =
      make_function(function_type.ptr(), runtime.ptr(), handle, opdock_describe(handle)->name);
  if (made == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(made);
}

void prepare(const py::object& function, int32_t device_type, int32_t device_index) {
  const FunctionInfo* info = function_info(function.ptr());
  if (info == nullptr) throw py::error_already_set();
  check([&](char* error, uint32_t size) {
    return opdock_prepare(info->handle, {device_type, device_index}, error, size);
  });
}

}  // namespace

}  // namespace opdock::python

// pybind11's entry point deadlocks in a subinterpreter (before Python 3.12 it can acquire only the
// main interpreter's GIL). So it gets another name here, and the entry point that CPython calls
// checks the interpreter first.
#define PyInit__opdock opdock_init_in_main_interpreter
PYBIND11_MODULE(_opdock, module) {
  using namespace opdock::python;
  module.doc() = "Opdock's host library for Python; use the package opdock.";
  py::object type = py::reinterpret_steal<py::object>(make_function_type());
  py::object carrier = py::reinterpret_steal<py::object>(make_export_type());
  py::object object = py::reinterpret_steal<py::object>(make_object_type());
  py::object generator = py::reinterpret_steal<py::object>(make_generator_type());
  if (!type || !carrier || !object || !generator) throw py::error_already_set();
  function_type = type.inc_ref();  // lives as long as the process
  module.attr("Function") = type;
  module.attr("_Export") = carrier;
  module.attr("Object") = object;
  module.attr("Generator") = generator;
  py::class_<Runtime>(module, "Runtime",
                      "Finds plugins and keeps their functions. plugin_path: colon-separated "
                      "folders or files that replace the default places. package_path: folders "
                      "searched after the user's own. num_threads: threads for CPU ops, 0 for all "
                      "cores. build, jit, fallback: policies, as in opdock.configure(). diagnose: "
                      "if true, invalid settings are no error here, and doctor_json reports them.")
      .def(py::init<const std::optional<std::string>&, const std::optional<std::string>&, uint32_t,
                    const std::optional<std::string>&, const std::optional<std::string>&,
                    const std::optional<std::string>&, bool>(),
           py::arg("plugin_path") = py::none(), py::arg("package_path") = py::none(),
           py::arg("num_threads") = 0, py::arg("build") = py::none(), py::arg("jit") = py::none(),
           py::arg("fallback") = py::none(), py::arg("diagnose") = false)
      .def("list_json", &Runtime::list, py::arg("rescan") = false)
      .def("inspect_json", &Runtime::inspect, py::arg("path"))
      .def("survey_json", &Runtime::survey, py::arg("request"))
      .def("inspect_diff_json", &Runtime::inspect_diff, py::arg("a"), py::arg("b"))
      .def("explain_json", &Runtime::explain, py::arg("name"))
      .def("doctor_json", &Runtime::doctor)
      .def("build_json", &Runtime::build, py::arg("path"), py::arg("options") = "{}")
      .def("install_json", &Runtime::install, py::arg("path"))
      .def("manual_seed", &Runtime::manual_seed, py::arg("seed"));
  add_compile(module, [](py::handle runtime) { return runtime.cast<const Runtime&>().handle(); });
  module.def("get_function", &get_function, py::arg("runtime"), py::arg("name"));
  module.def("make_formula", &make_formula, py::arg("runtime"), py::arg("formula"),
             py::arg("schema") = py::none(), py::arg("gradients_of") = py::none(),
             py::arg("recorder") = py::none());
  module.def("make_evaluator", &make_evaluator, py::arg("runtime"), py::arg("function"),
             py::arg("schema"));
  module.def("prepare", &prepare, py::arg("function"), py::arg("device_type"),
             py::arg("device_index"));
  add_shapes(module);
  add_torch_library(module);
  module.def("codes_json", [] {
    return json(
        [](char** out, char* error, uint32_t size) { return opdock_codes_json(out, error, size); });
  });
  module.def(
      "tuning_json",
      [](const std::string& action, const std::optional<std::string>& request) {
        return json([&](char** out, char* error, uint32_t size) {
          return opdock_tuning_json(action.c_str(), c_str(request), out, error, size);
        });
      },
      py::arg("action"), py::arg("request") = py::none());
  module.def("trust", [](const std::string& folder) {
    check([&](char* error, uint32_t size) { return opdock_trust(folder.c_str(), error, size); });
  });
  module.def(
      "trust_json",
      [](const std::string& action, const std::string& path) {
        return json([&](char** out, char* error, uint32_t size) {
          return opdock_trust_json(action.c_str(), path.c_str(), out, error, size);
        });
      },
      py::arg("action"), py::arg("path"));
  module.def("note_library", [](const std::string& library, const std::string& version) {
    check([&](char* error, uint32_t size) {
      return opdock_note_library(library.c_str(), version.c_str(), error, size);
    });
  });
  module.def("_allow_tf32", &allow_tf32, py::arg("allowed"));
  module.def("_torch_allows_tf32", [] { return torch_allows_tf32() != 0; });
  module.def("_want_deterministic", &want_deterministic, py::arg("wanted"));
  module.def(
      "_wants_deterministic",
      [](bool of_torch) {
        return (of_torch ? torch_wants_deterministic() : option_wants_deterministic()) != 0;
      },
      py::arg("of_torch"));
  module.def("version", [] { return std::string(opdock_version()); });
  module.def("_torch_probe", [] {
    const TorchProbe found = torch_probe_result();
    return py::make_tuple(found.impl, found.keys, found.grad);
  });
  module.def("_torch_recording_keys", [] { return torch_recording_keys; });
  module.def("_cancelled", [] {  // for tests: calls the hook that libopdock polls
    opdock_options options = {};
    set_hooks(&options);
    return options.cancelled(options.hooks_context) != 0;
  });
  module.def("_numpy_layout_holds", &numpy_layout_holds);
  module.def("_set_torch_probe", [](ptrdiff_t impl, ptrdiff_t keys, ptrdiff_t grad) {
    if (!torch_probe_set({impl, keys, grad})) throw py::error_already_set();
  });
}

#undef PyInit__opdock
PyMODINIT_FUNC PyInit__opdock();
PyMODINIT_FUNC PyInit__opdock() {
  if (PyInterpreterState_Get() == PyInterpreterState_Main()) {
    return opdock_init_in_main_interpreter();
  }
  PyErr_SetString(
      PyExc_ImportError,
      "opdock: found a subinterpreter, wanted the main interpreter, as plugins, devices "
      "and hooks are the process's; import opdock there, or use processes");
  return nullptr;
}
