// The configuration of the stand-ins: OPDOCK_SOFTGPU holds JSON, or the path of a file with it.
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
  int index = 0;     // among all configured GPUs; also the engine's number for it
  bool amd = false;  // true: HIP shows it; false: CUDA does
  std::string name, uuid;
  std::string arch;          // "sm_90"; "gfx90a:sramecc+:xnack-"
  int major = 0, minor = 0;  // 9 and 0 for gfx90a
  unsigned warp_size = 32;
  unsigned multiprocessors = 32;
  bool integrated = false;
  uint64_t memory = 0;
  std::map<int, int> attributes;  // CU_DEVICE_ATTRIBUTE_… → value; overrides the defaults
  std::vector<MigInstance> instances;
};

// A rule for an injected failure. Without `call` every call of the function fails, else only the
// Nth.
struct Failure {
  std::string function;
  int call = 0;         // 1 is the first call; 0: every call
  int error = 0;        // the function's result
  bool sticky = false;  // CUDA: every later call also fails with it, as after a device fault
  bool hang = false;    // never returns
  bool crash = false;   // aborts the process
};

struct Config {
  int cuda_version = 13000;    // cuDriverGetVersion's number
  int hip_version = 60342131;  // hipRuntimeGetVersion's number
  std::string release = "580.65.06";
  std::vector<Gpu> gpus;      // NVIDIA GPUs by PCI bus id, which is NVML's order
  std::vector<Gpu> amd_gpus;  // in KFD's order
  std::vector<int> order;     // CUDA's order unless CUDA_DEVICE_ORDER=PCI_BUS_ID; empty: the same
  std::vector<Failure> failures;

  // The folder that tells which source each image was compiled from. If it is empty, kernels are
  // recorded but not executed, commands are complete before the call returns, and accesses to
  // memory are not checked.
  std::string code;
  bool executes() const { return !code.empty(); }
  uint64_t seed = 0;
  unsigned workers = 0;
  uint64_t steps = Settings().steps;  // the limit for each block of a launch
  std::string counters, findings;     // file names; empty: no such file is written
  bool leaks = false;                 // report memory that is not released at exit as a finding
};

// Reads the configuration on first use. If it is invalid, ends the process and says why, because a
// test must have written it.
const Config& config();

// Returns the GPUs that CUDA shows this process: ordered, with CUDA_VISIBLE_DEVICES applied. Read
// once.
const std::vector<Gpu>& visible_gpus();
// Returns the GPUs that HIP shows, with ROCR_VISIBLE_DEVICES and then HIP_VISIBLE_DEVICES (else
// CUDA's) applied.
const std::vector<Gpu>& visible_amd_gpus();

}  // namespace softgpu
