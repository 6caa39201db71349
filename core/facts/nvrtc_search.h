// Lists the places where NVRTC, cuBLASLt and cuDNN may be on this machine.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "facts/environment.h"

namespace opdock {

// Returns the candidates in this order: `folders` (each may hold the library or be a Python
// site-packages folder), the active Python and conda environments, the Python in PATH and the
// system's Pythons, $CUDA_HOME and $CUDA_PATH, /usr/local/cuda, and last the names that the loader
// resolves. Except for those names, only existing files are returned, each once. *searched receives
// every folder that was searched, for messages.
std::vector<std::string> nvrtc_candidates(const std::vector<std::string>& folders,
                                          std::vector<std::string>* searched);
// Does the same with the variables and the root of `environment`. *tested (unless it is NULL)
// receives every folder whose contents mattered, also those that do not exist: the result stays the
// same until one of them changes or appears.
std::vector<std::string> nvrtc_candidates(const std::vector<std::string>& folders,
                                          const Environment& environment,
                                          std::vector<std::string>* searched,
                                          std::vector<std::string>* tested = nullptr);

// Do the same for cuBLASLt and for cuDNN 9, without additional folders.
std::vector<std::string> cublaslt_candidates(const Environment& environment);
std::vector<std::string> cudnn_candidates(const Environment& environment);

}  // namespace opdock
