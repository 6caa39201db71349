// What the stand-ins pretend to be: OPDOCK_SOFTGPU holds JSON, or the path of a file with it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace softgpu {

struct MigInstance {
  std::string uuid;
  uint64_t memory = 0;
};

struct Gpu {
  std::string name, uuid;
  int major = 0, minor = 0;
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
  int cuda_version = 13000;  // cuDriverGetVersion's number
  std::string release = "580.65.06";
  std::vector<Gpu> gpus;   // by PCI bus id, which is NVML's order
  std::vector<int> order;  // CUDA's order unless CUDA_DEVICE_ORDER=PCI_BUS_ID; empty: the same
  std::vector<Failure> failures;
};

// Read on first use; an invalid one ends the process with its reason, since a test wrote it.
const Config& config();

// The GPUs that CUDA shows this process: ordered, CUDA_VISIBLE_DEVICES applied. Read once.
const std::vector<Gpu>& visible_gpus();

}  // namespace softgpu
