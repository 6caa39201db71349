// Knows which libraries a package finds because it requires other packages, which bring them.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>
#include <string_view>

#include "inspect/conclude.h"

namespace opdock {
namespace {

// Beginnings of library names after "lib", in lower case. PyTorch's wheels load the vendors'
// libraries that they are built with: CUDA's or ROCm's.
constexpr std::string_view kOfTorch[] = {
    "torch",     "c10",       "shm",        "caffe2",   "cudart",       "cublas",    "cudnn",
    "cufft",     "curand",    "cusolver",   "cusparse", "cufile",       "cupti",     "nccl",
    "nvrtc",     "nvjitlink", "nvtoolsext", "nvshmem",  "amdhip64",     "hiprtc",    "hipblas",
    "rocblas",   "miopen",    "rccl",       "hipfft",   "hiprand",      "hipsolver", "hipsparse",
    "rocsolver", "rocsparse", "rocrand",    "rocfft",   "hsa-runtime64"};

constexpr struct {
  std::string_view package, library;
} kOtherNames[] = {{"cuda-runtime", "cudart"}, {"cuda-nvrtc", "nvrtc"},
                   {"cuda-cupti", "cupti"},    {"intel-openmp", "iomp5"},
                   {"nvtx", "nvtoolsext"},     {"tensorflow-cpu", "tensorflow"}};

// Returns "cublas" for "nvidia-cublas-cu12" and "cuda-runtime" for "nvidia-cuda-runtime".
std::string_view plain_name(std::string_view package) {
  if (package.starts_with("nvidia-")) package.remove_prefix(7);
  const size_t at = package.rfind("-cu");
  const bool is_version = at != package.npos && at + 3 < package.size() &&
                          package.find_first_not_of("0123456789", at + 3) == package.npos;
  return is_version ? package.substr(0, at) : package;
}

}  // namespace

bool provides_library(const std::vector<std::string>& requirements, const std::string& library) {
  if (!library.starts_with("lib")) return false;
  std::string stem = library.substr(3, library.find(".so") - 3);
  std::transform(stem.begin(), stem.end(), stem.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return std::any_of(requirements.begin(), requirements.end(), [&](const std::string& package) {
    if (package == "torch") {
      return std::any_of(std::begin(kOfTorch), std::end(kOfTorch),
                         [&](std::string_view begin) { return stem.starts_with(begin); });
    }
    std::string_view name = plain_name(package);
    for (const auto& other : kOtherNames) {
      if (name == other.package) name = other.library;
    }
    return name.size() >= 3 && stem.starts_with(name);
  });
}

}  // namespace opdock
