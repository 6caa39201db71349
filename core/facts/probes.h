// The single probes behind probe_machine(). Each fills in its members of `facts`, never fails, and
// records in `facts` what it did not find. Thread-safe unless stated otherwise.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "facts/environment.h"
#include "facts/machine.h"

namespace opdock {

// Finds the CPU's architecture, level and features, and the ELF machine of this process.
void probe_cpu(MachineFacts* facts);

// Finds the symbol versions of the C library, libstdc++ and libgcc that a plugin will be bound to.
// Examines those in this process or, if one is not loaded, the one that the loader would find
// (LD_LIBRARY_PATH, ld.so.cache, the default folders).
void probe_symbol_versions(MachineFacts* facts);

// Finds the CUDA driver and the visible GPUs through NVML or, where that is missing or broken,
// through the helper.
void probe_cuda(const Environment& environment, MachineFacts* facts);

// Finds AMD GPUs in KFD's sysfs, and ROCm's version in its installation.
void probe_rocm(const Environment& environment, MachineFacts* facts);

// Finds the libraries python, torch and cudart in this process.
void probe_in_process(MachineFacts* facts);

// Runs all of them except probe_in_process; caches nothing.
MachineFacts probe_machine(const Environment& environment);

}  // namespace opdock
