// NVIDIA's management library: driver and GPUs without initialising CUDA.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "facts/machine.h"

namespace opdock {

struct NvmlFacts {
  bool present = false;         // the library is there
  bool no_driver = false;       // it says that no driver is loaded
  std::string problem;          // why there are no facts; empty if there are
  std::optional<Version> cuda;  // the CUDA version that the driver supports
  std::string release;          // "580.159.03"
  std::vector<Gpu> gpus;        // all of them, by PCI bus id; index is that position
  // MIG instances: their UUIDs, and the position of the GPU each is part of. Filled only where one
  // is asked for.
  struct MigInstance {
    std::string uuid;
    int parent = 0;
    uint64_t memory_bytes = 0;
  };
  std::vector<MigInstance> instances;
};

// Opens `library` (a name or path for dlopen), asks, and shuts it down again. Never calls cuInit.
// One thread at a time; in a child forked while another was at it, only the problem is filled in.
NvmlFacts ask_nvml(const std::string& library, bool with_instances);

}  // namespace opdock
