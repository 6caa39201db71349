// The code folder: it tells which source an image was compiled from, and holds that source compiled
// to a library that the engine executes (core/softgpu/engine).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "image.h"

namespace softgpu {

struct Kernel;

// Returns the kernel `name` of `image` for the GPU, compiled on first use and kept until the
// process ends. Returns NULL if the folder does not have the image or its source does not compile,
// and then writes the reason to stderr and passes it to explain(kNotFound, …), so that no kernel is
// silently not executed. Blocking; thread-safe; the caller must not hold the state's mutex.
const Kernel* find_kernel(const Image& image, const std::string& name, const Gpu& gpu);

}  // namespace softgpu
