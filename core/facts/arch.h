// Parses GPU architecture names: "sm_90a", "compute_100f", "gfx90a:sramecc+:xnack-",
// "gfx10-3-generic".
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace opdock {

struct CudaArch {
  bool is_virtual = false;  // compute_NN (PTX) rather than sm_NN (a cubin)
  int major = 0;
  int minor = 0;
  char suffix = '\0';  // 'a': this architecture only; 'f': its family; NUL: neither
};

// Parses sm_NN[af] or compute_NN[af]; nullopt for anything else. The last digit is the minor
// number: sm_120 is 12.0.
std::optional<CudaArch> parse_cuda_arch(std::string_view text);
std::string to_text(const CudaArch& arch);
// Parses a GPU as people name it: "sm_90a", or "9.0a" for its compute capability. Refuses PTX's
// names.
std::optional<CudaArch> parse_cuda_gpu(std::string_view text);

// Returns whether a compute capability belongs to the Tegra line of integrated GPUs, whose cubins
// do not run on other GPUs, nor theirs on Tegra. NVIDIA publishes no rule, so this is a list:
// Jetson Nano, TX2, Xavier, Orin, Thor (10.1 up to CUDA 12.9, 11.0 since 13.0). A later Tegra GPU
// must be added to it.
bool is_tegra(int major, int minor);

// An AMD target ID: the processor and its feature flags, each on, off or not stated.
struct GfxArch {
  std::string processor;  // "gfx90a", "gfx9-4-generic"
  std::optional<bool> sramecc, xnack;
  bool is_generic() const { return processor.ends_with("-generic"); }
};

// Parses "gfx90a:sramecc+:xnack-"; nullopt for an unknown feature or a name that does not begin
// with gfx.
std::optional<GfxArch> parse_gfx_arch(std::string_view text);

struct GfxVersion {
  uint32_t major = 0, minor = 0;
};
// Returns 10.3 for "gfx1030": the last two digits, which are hexadecimal, are the minor number and
// the stepping. nullopt for generic and other names.
std::optional<GfxVersion> gfx_version(std::string_view processor);

}  // namespace opdock
