// SPDX-License-Identifier: Apache-2.0
#include "gemm/cublaslt_library.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <string_view>
#include <vector>

#include "base/loaded_objects.h"
#include "base/version.h"
#include "driver/api_library.h"
#include "facts/nvrtc_search.h"
#include "gemm/fallback_warning.h"

namespace opdock::cublaslt {
namespace {

ApiLibrary<Api>& the_library = *new ApiLibrary<Api>;
std::atomic<bool> known_missing{false};

constexpr std::string_view kPrefix = "libcublasLt.so.";

void fill(ApiSymbols* symbols, Api* api) {
  symbols->need("cublasLtCreate", &api->cublasLtCreate);
  symbols->need("cublasLtGetVersion", &api->cublasLtGetVersion);
  symbols->need("cublasLtGetStatusName", &api->cublasLtGetStatusName);
  symbols->need("cublasLtMatmul", &api->cublasLtMatmul);
  symbols->need("cublasLtMatmulAlgoGetHeuristic", &api->cublasLtMatmulAlgoGetHeuristic);
  symbols->need("cublasLtMatmulDescCreate", &api->cublasLtMatmulDescCreate);
  symbols->need("cublasLtMatmulDescDestroy", &api->cublasLtMatmulDescDestroy);
  symbols->need("cublasLtMatmulDescSetAttribute", &api->cublasLtMatmulDescSetAttribute);
  symbols->need("cublasLtMatrixLayoutCreate", &api->cublasLtMatrixLayoutCreate);
  symbols->need("cublasLtMatrixLayoutDestroy", &api->cublasLtMatrixLayoutDestroy);
  symbols->need("cublasLtMatrixLayoutSetAttribute", &api->cublasLtMatrixLayoutSetAttribute);
  symbols->need("cublasLtMatmulPreferenceCreate", &api->cublasLtMatmulPreferenceCreate);
  symbols->need("cublasLtMatmulPreferenceDestroy", &api->cublasLtMatmulPreferenceDestroy);
  symbols->need("cublasLtMatmulPreferenceSetAttribute", &api->cublasLtMatmulPreferenceSetAttribute);
}

// Returns 12 for "libcublasLt.so.12.9.1", which belongs to CUDA 12.
uint32_t major_of(const std::string& path) {
  const size_t at = path.rfind(kPrefix);
  if (at == std::string::npos) return 0;
  const auto version = Version::parse(path.substr(at + kPrefix.size()));
  return version ? version->major() : 0;
}

uint32_t driver_major(Driver* driver) {
  const auto get = reinterpret_cast<int (*)(int*)>(driver->symbol("cuDriverGetVersion"));
  int version = 0;
  return get != nullptr && get(&version) == 0 ? static_cast<uint32_t>(version / 1000) : 0;
}

// The returned status is OPDOCK_NOT_FOUND if there is no library, and another error if none is
// usable.
Status open(Driver* driver, void** out) {
  const std::string& named = gemm::wanted_library();
  if (!named.empty()) {
    *out = dlopen(named.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (*out != nullptr) return {};
    const char* const text = dlerror();
    return {OPDOCK_INCOMPATIBLE, "OPDOCK_GEMM: " + std::string(text != nullptr ? text : named)};
  }
  if (const std::string path = loaded_library(kPrefix); !path.empty()) {
    *out = dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
    if (*out != nullptr) return {};
  }
  std::vector<std::string> paths = cublaslt_candidates(current_environment());
  std::stable_sort(paths.begin(), paths.end(), [](const std::string& a, const std::string& b) {
    return major_of(a) > major_of(b);
  });
  const uint32_t newest = driver_major(driver);
  std::string why;
  for (const std::string& path : paths) {
    const bool is_path = path.find('/') != std::string::npos;
    if (newest != 0 && major_of(path) > newest) {
      if (is_path) {
        why = path + " with a driver of CUDA " + std::to_string(newest) +
              ", which takes that of CUDA " + std::to_string(newest) + " at most";
      }
      continue;
    }
    *out = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (*out != nullptr) return {};
    const char* const text = dlerror();
    if (is_path) why = text != nullptr ? text : path;
  }
  if (!why.empty()) return {OPDOCK_INCOMPATIBLE, why};
  return {OPDOCK_NOT_FOUND,
          "no libcublasLt.so.13 or .12 in this process, in wheels, conda, "
          "CUDA_HOME, /usr/local/cuda or where the loader looks"};
}

}  // namespace

const Api* open_library(Driver* driver, Reason* why) {
  const Api* api = nullptr;
  const Status opened = the_library.get(
      [driver](void** out) { return open(driver, out); }, fill,
      [](const std::string& missing) { return "a libcublasLt without " + missing; }, &api);
  if (opened.ok()) return api;
  give_up();
  const bool missing = opened.status == OPDOCK_NOT_FOUND;
  *why = make_reason(missing ? Code::kGemmLibraryMissing : Code::kGemmLibraryUnfit, opened.text,
                     "cuBLASLt of CUDA 12 or 13");
  why->advice = "install PyTorch for CUDA, or nvidia-cublas (pip install nvidia-cublas)";
  return nullptr;
}

void give_up() {
  known_missing.store(true, std::memory_order_relaxed);
}

bool is_known_missing() {
  return known_missing.load(std::memory_order_relaxed);
}

}  // namespace opdock::cublaslt
