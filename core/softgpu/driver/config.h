// What the stand-ins pretend to be: OPDOCK_SOFTGPU holds JSON, or the path of a file with it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "../engine/engine.h"

namespace softgpu {

struct MigInstance {
  std::string uuid;
  uint64_t memory = 0;
};

struct Gpu {
  int index = 0;     // of all configured ones; the engine's number for it
  bool amd = false;  // HIP's, else CUDA's
  std::string name, uuid;
  std::string arch;          // "sm_90"; "gfx90a:sramecc+:xnack-"
  int major = 0, minor = 0;  // of an AMD GPU: 9 and 0 for gfx90a
  unsigned warp_size = 32;
  unsigned multiprocessors = 32;
  bool integrated = false;
  uint64_t memory = 0;
  std::map<int, int> attributes;  // CU_DEVICE_ATTRIBUTE_… → value, over the defaults
  std::vector<MigInstance> instances;
};

// One rule of what goes wrong. Without `call` every call of the function fails, else only the Nth.
struct Failure {
  std::string function;
  int call = 0;         // 1 is the first; 0: every one
  int error = 0;        // the function's result
  bool sticky = false;  // CUDA: every later call fails with it too, as after a device fault
  bool hang = false;    // never returns
  bool crash = false;   // aborts the process
};

struct Config {
  int cuda_version = 13000;    // cuDriverGetVersion's number
  int hip_version = 60342131;  // hipRuntimeGetVersion's
  std::string release = "580.65.06";
  std::vector<Gpu> gpus;      // NVIDIA's by PCI bus id, which is NVML's order
  std::vector<Gpu> amd_gpus;  // in KFD's order
  std::vector<int> order;     // CUDA's order unless CUDA_DEVICE_ORDER=PCI_BUS_ID; empty: the same
  std::vector<Failure> failures;

  // The folder that says which source each image was compiled from. Empty: kernels are recorded
  // and not executed, commands are done before the call returns, memory is not watched.
  std::string code;
  bool executes() const { return !code.empty(); }
  uint64_t seed = 0;
  unsigned workers = 0;
  uint64_t steps = Settings().steps;  // that each block of a launch may take
  std::string counters, findings;     // files; empty: none is written
  bool leaks = false;                 // at exit memory that nobody released is a finding
};

// Read on first use; an invalid one ends the process with its reason, since a test wrote it.
const Config& config();

// The GPUs that CUDA shows this process: ordered, CUDA_VISIBLE_DEVICES applied. Read once.
const std::vector<Gpu>& visible_gpus();
// Those that HIP shows: ROCR_VISIBLE_DEVICES, then HIP_VISIBLE_DEVICES (else CUDA's) applied.
const std::vector<Gpu>& visible_amd_gpus();

}  // namespace softgpu
