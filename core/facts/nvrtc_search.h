// Where NVRTC, and cuBLASLt, may be on this machine.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "facts/environment.h"

namespace opdock {

// The candidates: `folders` first (each may hold the library or be a Python site-packages
// folder), then the active Python and conda environments, $CUDA_HOME and $CUDA_PATH,
// /usr/local/cuda, and last the loader's own path. Only files that exist are returned, except the
// loader's names; each file once. *searched gets every folder that was looked into, for messages.
std::vector<std::string> nvrtc_candidates(const std::vector<std::string>& folders,
                                          std::vector<std::string>* searched);
// The same with the variables and the root of `environment`. *tested (unless NULL) gets every
// folder whose contents counted, those that are not there included: while none of them changes, and
// none comes, the answer is the same.
std::vector<std::string> nvrtc_candidates(const std::vector<std::string>& folders,
                                          const Environment& environment,
                                          std::vector<std::string>* searched,
                                          std::vector<std::string>* tested = nullptr);

// The same for cuBLASLt, without further folders.
std::vector<std::string> cublaslt_candidates(const Environment& environment);

}  // namespace opdock
