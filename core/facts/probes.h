// The single probes behind probe_machine(). Each fills in its members of `facts`, never fails, and
// names what it did not find. Thread-safe unless said otherwise.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "facts/environment.h"
#include "facts/machine.h"

namespace opdock {

// CPU architecture, level and features of this machine; the ELF machine of this process.
void probe_cpu(MachineFacts* facts);

// Symbol versions of the C library, libstdc++ and libgcc that a plugin will be bound to: those in
// this process, or, of one that is not in it, those that the loader would find (LD_LIBRARY_PATH,
// ld.so.cache, the default folders).
void probe_symbol_versions(MachineFacts* facts);

// CUDA driver and visible GPUs, through NVML, or where that is missing or broken through the
// helper.
void probe_cuda(const Environment& environment, MachineFacts* facts);

// AMD GPUs from KFD's sysfs, ROCm's version from its installation.
void probe_rocm(const Environment& environment, MachineFacts* facts);

// Libraries in this process: python, torch, cudart.
void probe_in_process(MachineFacts* facts);

// All of them but probe_in_process; nothing is cached.
MachineFacts probe_machine(const Environment& environment);

}  // namespace opdock
