// The code folder: which source an image was compiled from, and that source as a library that the
// engine executes (core/softgpu/engine).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "image.h"

namespace softgpu {

struct Kernel;

// The kernel `name` of `image` for the GPU, compiled on first use; lives as long as the process.
// NULL, with the reason said on stderr and to explain(kNotFound, …), where the folder does not have
// the image or its source does not compile: nothing is silently not executed. Blocking;
// thread-safe; without the state's mutex.
const Kernel* find_kernel(const Image& image, const std::string& name, const Gpu& gpu);

}  // namespace softgpu
