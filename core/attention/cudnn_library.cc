// SPDX-License-Identifier: Apache-2.0
#include "attention/cudnn_library.h"

#include <dlfcn.h>

#include <string>
#include <vector>

#include "attention/form.h"
#include "attention/settings.h"
#include "base/loaded_objects.h"
#include "driver/api_library.h"
#include "facts/nvrtc_search.h"

namespace opdock::cudnn {
namespace {

ApiLibrary<Api>& the_library = *new ApiLibrary<Api>;

constexpr const char* kName = "libcudnn.so.9";

void fill(ApiSymbols* symbols, Api* api) {
  symbols->need("cudnnGetVersion", &api->cudnnGetVersion);
  symbols->need("cudnnGetCudartVersion", &api->cudnnGetCudartVersion);
  symbols->need("cudnnGetErrorString", &api->cudnnGetErrorString);
  symbols->need("cudnnGetLastErrorString", &api->cudnnGetLastErrorString);
  symbols->need("cudnnCreate", &api->cudnnCreate);
  symbols->need("cudnnSetStream", &api->cudnnSetStream);
  symbols->need("cudnnBackendCreateDescriptor", &api->cudnnBackendCreateDescriptor);
  symbols->need("cudnnBackendDestroyDescriptor", &api->cudnnBackendDestroyDescriptor);
  symbols->need("cudnnBackendFinalize", &api->cudnnBackendFinalize);
  symbols->need("cudnnBackendSetAttribute", &api->cudnnBackendSetAttribute);
  symbols->need("cudnnBackendGetAttribute", &api->cudnnBackendGetAttribute);
  symbols->need("cudnnBackendExecute", &api->cudnnBackendExecute);
}

std::string version_text(size_t version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

int driver_version(Driver* driver) {
  const auto get = reinterpret_cast<int (*)(int*)>(driver->symbol("cuDriverGetVersion"));
  int version = 0;
  return get != nullptr && get(&version) == 0 ? version : 0;
}

// Returns why this library cannot be used, or "". A library whose functions are missing is found
// out later.
std::string unfit(void* library, int driver, const std::string& path) {
  using Number = size_t (*)();
  const auto version = reinterpret_cast<Number>(dlsym(library, "cudnnGetVersion"));
  if (version != nullptr && version() < attention::kLeastVersion)
    return path + ", cuDNN " + version_text(version());
  const auto cudart = reinterpret_cast<Number>(dlsym(library, "cudnnGetCudartVersion"));
  // A driver runs programs for each release of its major version of CUDA.
  if (cudart != nullptr && driver != 0 && cudart() / 1000 > static_cast<size_t>(driver / 1000)) {
    return path + ", for CUDA " + std::to_string(cudart() / 1000) + ", with a driver of CUDA " +
           std::to_string(driver / 1000);
  }
  return {};
}

// The returned status is OPDOCK_NOT_FOUND if there is no library, and another error if none is
// usable.
Status open(Driver* driver, void** out) {
  const int newest = driver_version(driver);
  std::string why;
  const auto try_open = [&](const std::string& path, int flags) {
    void* const library = dlopen(path.c_str(), flags);
    if (library == nullptr) {
      const char* const text = dlerror();
      if (path.find('/') != std::string::npos) why = text != nullptr ? text : path;
      return false;
    }
    const std::string problem = unfit(library, newest, path);
    if (problem.empty()) {
      *out = library;
      return true;
    }
    why = problem;
    dlclose(library);
    return false;
  };
  if (const std::string& named = attention::named_library(); !named.empty()) {
    if (try_open(named, RTLD_NOW | RTLD_LOCAL)) return {};
    return {OPDOCK_INCOMPATIBLE, "OPDOCK_ATTENTION: " + why};
  }
  // A process has one cuDNN 9: its parts are found by name, so another copy would get the loaded
  // one's.
  if (const std::string path = loaded_library(kName); !path.empty()) {
    if (try_open(path, RTLD_NOW | RTLD_NOLOAD)) return {};
    return {OPDOCK_INCOMPATIBLE, why};
  }
  for (const std::string& path : cudnn_candidates(current_environment()))
    if (try_open(path, RTLD_NOW | RTLD_LOCAL)) return {};
  if (!why.empty()) return {OPDOCK_INCOMPATIBLE, why};
  return {OPDOCK_NOT_FOUND,
          std::string("no ") + kName +
              " in this process, in wheels, conda, CUDA_HOME, /usr/local/cuda or where the loader "
              "looks"};
}

}  // namespace

const Api* open_library(Driver* driver, Reason* why) {
  const Api* api = nullptr;
  const Status opened = the_library.get(
      [driver](void** out) { return open(driver, out); }, fill,
      [](const std::string& missing) { return "a libcudnn without " + missing; }, &api);
  if (opened.ok()) return api;
  const bool missing = opened.status == OPDOCK_NOT_FOUND;
  *why = make_reason(missing ? Code::kAttentionLibraryMissing : Code::kAttentionLibraryUnfit,
                     opened.text,
                     "cuDNN 9, " + version_text(attention::kLeastVersion) +
                         " or newer, for the driver's CUDA or an older one");
  return nullptr;
}

}  // namespace opdock::cudnn
