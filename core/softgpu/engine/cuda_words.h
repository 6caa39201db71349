// CUDA's own names in device source, which no other compiler knows.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "compile.h"

namespace softgpu {

// Of the names of CUDA in the source a line each with the first place, and what the vocabulary has
// instead. Empty if the compiler's `output` complains of none.
std::string explain_cuda_words(const KernelSource& source, const std::string& output);

}  // namespace softgpu
