// Decides whether a device image runs on a GPU, by the vendors' rules of binary compatibility.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>

#include "base/reason.h"
#include "facts/machine.h"
#include "note/file_facts.h"

namespace opdock {

struct ImageFit {
  // The problem that keeps the image from running (or from being known to run); nullopt: it runs.
  std::optional<Code> problem;
  // Greater is better, compared number by number; meaningful if the image may run.
  std::array<int, 4> rank{};
};

// Judges cubin and PTX. Sources: NVIDIA, "CUDA C++ Programming Guide", sections on binary, PTX and
// family-specific compatibility; "CUDA Compatibility", minor version compatibility; "CUDA for
// Tegra".
ImageFit fit_cuda(const DeviceImage& image, const Gpu& gpu, const MachineFacts& machine);

// Judges code objects. Source: LLVM, "User Guide for AMDGPU Backend", sections Target ID and
// Generic Processors.
ImageFit fit_rocm(const DeviceImage& image, const Gpu& gpu);

}  // namespace opdock
