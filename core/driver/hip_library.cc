// SPDX-License-Identifier: Apache-2.0
#include "driver/hip_library.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "base/loaded_objects.h"

namespace opdock::hip {
namespace {

constexpr const char* kNames[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"};

}  // namespace

std::string loaded_library() {
  // "libamdhip64.so.6.2.41133", or "libamdhip64-3d4e5f.so.6" from a wheel that renames its
  // libraries.
  std::string path = opdock::loaded_library("libamdhip64.so");
  return path.empty() ? opdock::loaded_library("libamdhip64-") : path;
}

std::vector<std::string> library_candidates(const std::string& rocm) {
  std::vector<std::string> candidates;
  if (!rocm.empty()) {
    for (const char* name : kNames) candidates.push_back(rocm + "/lib/" + name);
  }
  for (const char* name : kNames) candidates.push_back(std::string("/opt/rocm/lib/") + name);
  for (const char* name : kNames) candidates.emplace_back(name);
  return candidates;
}

Status open_library(void** out) {
  *out = nullptr;
  if (const std::string path = loaded_library(); !path.empty()) {
    *out = dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
    if (*out != nullptr) return {};
  }
  const char* rocm = secure_getenv("ROCM_PATH");
  std::string why;
  for (const std::string& candidate : library_candidates(rocm == nullptr ? "" : rocm)) {
    const bool is_path = candidate.front() == '/';
    if (is_path && access(candidate.c_str(), F_OK) != 0) continue;
    *out = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (*out != nullptr) return {};
    // Prefer the message of a library that exists but cannot be loaded.
    const char* text = dlerror();
    const std::string now = text == nullptr ? candidate : text;
    if (is_path || why.empty() || now.find("No such file") == now.npos) why = now;
  }
  return {OPDOCK_INCOMPATIBLE,
          "no HIP runtime: libamdhip64.so.7, .6 or .5 is neither in ROCM_PATH/lib nor in "
          "/opt/rocm/lib nor where the loader looks (" +
              why + "). Install AMD's ROCm"};
}

}  // namespace opdock::hip
