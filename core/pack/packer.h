// Makes the files that make a shared object a plugin: descriptor, note, device images.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "pack/hip_images.h"

namespace opdock::pack {

struct PackOptions {
  std::string toml;
  std::string out_dir = ".";
  std::string prefix;  // put before the files' names
  std::string depfile;
  std::string cuda_archs;  // empty: the default of the compilers here
  std::string gpu_archs;
  std::string include;  // the folder of opdock/device.cuh
  std::vector<std::string> nvrtc_search;
  std::string cache;  // a folder; empty: none
  std::string toolchain;
#if defined(__x86_64__)
  std::string cpu_arch = "x86_64";
  int cpu_level = 1;
#else
  std::string cpu_arch = "aarch64";
  int cpu_level = 0;
#endif
  bool no_cuda = false;
  bool require_cuda = false;
  bool no_formula_kernels = false;  // images have the plugin's own kernels alone
  bool no_optimization = false;     // see ImageRequest
  HipOptions hip;
};

// Writes entry.c, note.S and images.bin. Returns the program's exit status; errors go to standard
// error.
int run_packer(const PackOptions& options);

}  // namespace opdock::pack
