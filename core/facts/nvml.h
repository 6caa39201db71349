// Asks NVIDIA's management library for the driver and the GPUs, without initialising CUDA.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "facts/machine.h"

namespace opdock {

struct NvmlFacts {
  bool present = false;         // the library was found
  bool no_driver = false;       // NVML reports that no driver is loaded
  std::string problem;          // why there are no facts; empty if there are
  std::optional<Version> cuda;  // the CUDA version that the driver supports
  std::string release;          // "580.159.03"
  std::vector<Gpu> gpus;        // all GPUs, by PCI bus id; index is the position in this list
  // MIG instances: their UUIDs, and the position of the GPU that each belongs to. Filled in only on
  // request (with_instances).
  struct MigInstance {
    std::string uuid;
    int parent = 0;
    uint64_t memory_bytes = 0;
  };
  std::vector<MigInstance> instances;
};

// Opens `library` (a name or path for dlopen), asks it, and shuts it down again. Never calls
// cuInit. One thread at a time. In a child that was forked while another thread was in here, only
// the problem is filled in.
NvmlFacts ask_nvml(const std::string& library, bool with_instances);

}  // namespace opdock
