// SPDX-License-Identifier: Apache-2.0
#include "runtime.h"

#include <sys/auxv.h>

#include <array>
#include <cstdlib>

#include "python_packages.h"

namespace opdock::cli {

void check(const std::function<opdock_status(char* error, uint32_t error_size)>& call) {
  std::array<char, 8192> error{};
  const opdock_status status = call(error.data(), static_cast<uint32_t>(error.size()));
  if (status == OPDOCK_OK) return;
  const std::string text(error.data());
  throw Failure{status, text.empty() ? opdock_status_name(status) : text};
}

opdock_options default_options(const std::string& plugin_path) {
  opdock_options options{};
  options.struct_size = sizeof options;
  if (!plugin_path.empty()) options.plugin_path = plugin_path.c_str();
  // The Python package's console script has said where other packages announce plugins; else
  // Python is asked, if anybody looks there.
  options.package_path = secure_getenv("OPDOCK_PACKAGE_PATH");
  if (options.package_path == nullptr && plugin_path.empty() &&
      std::getenv("OPDOCK_PLUGIN_PATH") == nullptr && getauxval(AT_SECURE) == 0) {
    static const std::string folders = package_folders();
    options.package_path = folders.c_str();
  }
  return options;
}

Runtime::Runtime(const std::string& plugin_path) : Runtime(default_options(plugin_path)) {}

Runtime::Runtime(const opdock_options& options) {
  check([&](char* error, uint32_t size) {
    return opdock_runtime_create(&options, &runtime_, error, size);
  });
}

Runtime::~Runtime() {
  opdock_runtime_destroy(runtime_);
}

Report read_report(
    const std::function<opdock_status(char** out, char* error, uint32_t error_size)>& call) {
  char* text = nullptr;
  check([&](char* error, uint32_t size) { return call(&text, error, size); });
  Report report = Report::parse(text, nullptr, false);
  opdock_free(text);
  return report;
}

}  // namespace opdock::cli
