// SPDX-License-Identifier: Apache-2.0
#include "compile.h"

#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "errors.h"
#include "gil.h"
#include "kernel.h"
#include "opdock/compile.h"

namespace py = pybind11;

namespace opdock::python {

namespace {

py::handle kernel_type;
opdock_runtime* (*handle_of)(py::handle) = nullptr;

// A program compiled for one device or one architecture.
class CompiledModule {
 public:
  CompiledModule(const py::object& runtime, const std::string& source, const std::string& name,
                 const std::vector<std::pair<std::string, std::string>>& headers,
                 const std::vector<std::string>& options, const std::vector<std::string>& kernels,
                 int32_t device_type, int32_t device, const std::optional<std::string>& arch)
      : runtime_(runtime) {
    std::vector<opdock_header> given_headers;
    for (const auto& [header, text] : headers) {
      given_headers.push_back({header.c_str(), text.c_str()});
    }
    std::vector<const char*> given_options, given_kernels;
    for (const std::string& option : options) given_options.push_back(option.c_str());
    for (const std::string& kernel : kernels) given_kernels.push_back(kernel.c_str());
    opdock_compile_options all = {};
    all.struct_size = sizeof all;
    all.source = source.c_str();
    all.name = name.c_str();
    all.headers = given_headers.data();
    all.num_headers = static_cast<uint32_t>(given_headers.size());
    all.options = given_options.data();
    all.num_options = static_cast<uint32_t>(given_options.size());
    all.kernels = given_kernels.data();
    all.num_kernels = static_cast<uint32_t>(given_kernels.size());
    if (device >= 0) all.device = {device_type, device};
    all.arch = arch.has_value() ? arch->c_str() : nullptr;
    opdock_runtime* handle = handle_of(runtime);
    check([&](char* error, uint32_t size) {
      return opdock_compile(handle, &all, &module_, error, size);
    });
  }
  CompiledModule(const CompiledModule&) = delete;
  CompiledModule& operator=(const CompiledModule&) = delete;
  ~CompiledModule() { opdock_module_free(module_); }

  // Returns the address of the kernel's handle, for opdock.Kernel (kernel.cc).
  uintptr_t kernel(const std::string& name) const {
    opdock_kernel* found = nullptr;
    check([&](char* error, uint32_t size) {
      return opdock_module_kernel(module_, name.c_str(), &found, error, size);
    });
    return reinterpret_cast<uintptr_t>(found);
  }

  // (bytes, architecture, compiler, from the cache?, warnings)
  py::tuple image() const {
    opdock_module_image found = {};
    found.struct_size = sizeof found;
    check([&](char* error, uint32_t size) {
      return opdock_module_get_image(module_, &found, error, size);
    });
    return py::make_tuple(
        py::bytes(reinterpret_cast<const char*>(found.bytes), static_cast<size_t>(found.size)),
        std::string(found.arch), std::string(found.compiler), found.from_cache != 0,
        std::string(found.log));
  }

 private:
  py::object runtime_;  // must outlive the module
  opdock_module* module_ = nullptr;
};

py::object kernel_object(const py::object& module, const std::string& name, int32_t device_type,
                         int32_t device) {
  PyObject* made = make_kernel(kernel_type.ptr(), module.ptr(), name, {device_type, device});
  if (made == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(made);
}

std::string reasons_json() {
  char* found = nullptr;
  check(
      [&](char* error, uint32_t size) { return opdock_compile_reasons_json(&found, error, size); });
  std::string text(found);
  opdock_free(found);
  return text;
}

}  // namespace

void add_compile(py::module_& module, opdock_runtime* (*runtime_of)(py::handle)) {
  handle_of = runtime_of;
  py::object type = py::reinterpret_steal<py::object>(make_kernel_type());
  if (!type) throw py::error_already_set();
  kernel_type = type.inc_ref();  // lives as long as the process
  module.attr("Kernel") = type;
  py::class_<CompiledModule>(module, "_CompiledModule")
      .def(py::init<const py::object&, const std::string&, const std::string&,
                    const std::vector<std::pair<std::string, std::string>>&,
                    const std::vector<std::string>&, const std::vector<std::string>&, int32_t,
                    int32_t, const std::optional<std::string>&>())
      .def("kernel", &CompiledModule::kernel)
      .def("image", &CompiledModule::image);
  module.def("_make_kernel", &kernel_object);
  // The reasons of the calling thread's last failure.
  module.def("_compile_reasons_json", &reasons_json);
  module.def("_add_compiler_folder", [](const std::string& folder) {
    check([&](char* error, uint32_t size) {
      return opdock_add_compiler_folder(folder.c_str(), error, size);
    });
  });
}

}  // namespace opdock::python
