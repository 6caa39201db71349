// Explains errors about CUDA's own names in device source, which no other compiler knows.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "compile.h"

namespace softgpu {

// Returns one line per CUDA name in the source, with its first place and the vocabulary's
// replacement. Empty if the compiler's `output` mentions none of them.
std::string explain_cuda_words(const KernelSource& source, const std::string& output);

}  // namespace softgpu
