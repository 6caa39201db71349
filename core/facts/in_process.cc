// SPDX-License-Identifier: Apache-2.0
#include "facts/in_process.h"

#include <dlfcn.h>
#include <link.h>

#include <cstdio>
#include <string_view>

#include "base/loaded_objects.h"
#include "base/mutex.h"
#include "facts/probes.h"
#include "opdock/opdock.h"

namespace opdock {
namespace {

Mutex& noted_mutex = *new Mutex;
std::map<std::string, Version>& noted = *new std::map<std::string, Version>;

struct Loaded {
  std::string cudart, torch;  // paths; empty if not loaded
};

int visit_loaded(dl_phdr_info* library, size_t, void* context) {
  const std::string_view path = library->dlpi_name ? library->dlpi_name : "";
  const std::string_view name = path.substr(path.rfind('/') + 1);
  auto* loaded = static_cast<Loaded*>(context);
  if (name.starts_with("libcudart.so.") && loaded->cudart.empty()) loaded->cudart = path;
  if (name == "libtorch_cpu.so") loaded->torch = path;
  return 0;
}

template <typename F>
F* find(const std::string& path, const char* symbol) {
  void* const library = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (!library) return nullptr;
  F* const function = reinterpret_cast<F*>(dlsym(library, symbol));
  dlclose(library);  // releases only the reference taken here
  return function;
}

// The version is a constant of the runtime library; asking for it does not touch the driver.
std::optional<Version> cudart_version(const std::string& path) {
  auto* const get = find<int(int*)>(path, "cudaRuntimeGetVersion");
  int version = 0;
  if (!get || get(&version) != 0 || version <= 0) return std::nullopt;
  return Version{static_cast<uint32_t>(version / 1000), static_cast<uint32_t>(version % 1000 / 10)};
}

// libtorch's stable interface returns major, minor and patch in the top three bytes.
std::optional<Version> torch_version(const std::string& path) {
  auto* const get = find<uint64_t()>(path, "aoti_torch_abi_version");
  if (!get) return std::nullopt;
  const uint64_t version = get();
  return Version{static_cast<uint32_t>(version >> 56), static_cast<uint32_t>(version >> 48 & 255),
                 static_cast<uint32_t>(version >> 40 & 255)};
}

std::optional<Version> python_version() {
  auto* const get = reinterpret_cast<const char* (*)()>(dlsym(RTLD_DEFAULT, "Py_GetVersion"));
  if (!get) return std::nullopt;
  const std::string_view text = get();  // "3.11.2 (main, …) [GCC …]"
  return Version::parse(text.substr(0, text.find_first_not_of("0123456789.")));
}

}  // namespace

bool note_in_process(const std::string& library, const std::string& version) {
  std::string_view text = version;
  // For versions such as "2.14.0a0+git1234" and "2.13.0rc1", the numbers before the first letter
  // count.
  text = text.substr(0, text.find_first_not_of("0123456789."));
  const std::optional<Version> parsed = Version::parse(text);
  if (!parsed || library.empty()) return false;
  const std::lock_guard lock(noted_mutex);
  noted[library] = *parsed;
  return true;
}

void probe_in_process(MachineFacts* facts) {
  Loaded loaded;
  visit_loaded_objects(visit_loaded, &loaded);
  const auto put = [&](const char* name, const std::optional<Version>& version) {
    if (version) facts->in_process[name] = *version;
  };
  if (!loaded.cudart.empty()) put("cudart", cudart_version(loaded.cudart));
  if (!loaded.torch.empty()) put("torch", torch_version(loaded.torch));
  put("python", python_version());
  const std::lock_guard lock(noted_mutex);
  for (const auto& [library, version] : noted) facts->in_process[library] = version;
}

}  // namespace opdock

opdock_status opdock_note_library(const char* library, const char* version, char* error,
                                  uint32_t error_size) {
  if (library && version && opdock::note_in_process(library, version)) return OPDOCK_OK;
  if (error) {
    std::snprintf(error, error_size,
                  "found library \"%s\" with version \"%s\", wanted a name and a version that "
                  "begins with numbers, such as \"2.13.0\"",
                  library ? library : "", version ? version : "");
  }
  return OPDOCK_INVALID_ARGUMENT;
}
