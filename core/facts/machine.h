// The properties of this machine and this process on which a verdict depends.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/version.h"
#include "note/note.h"

namespace opdock {

struct Gpu {
  Backend backend;     // kCuda or kRocm
  int index = 0;       // the number that programs see (the visibility variables are applied)
  std::string name;    // "NVIDIA H200"
  std::string uuid;    // "GPU-…"; empty if unknown
  std::string arch;    // "sm_90", "gfx90a:sramecc+:xnack-"
  int major = 0;       // compute capability; 9 for gfx90a
  int minor = 0;       // 0 for gfx90a
  bool tegra = false;  // an integrated GPU of the Tegra line, which runs only its own cubins
  uint64_t memory_bytes = 0;
};

struct MachineFacts {
  std::string cpu_arch;   // as uname names it: "x86_64", "aarch64"
  std::string cpu_model;  // "AMD EPYC 9654 96-Core Processor"; empty if unknown
  int cpu_level = 0;      // x86-64: the highest psABI level, 1…4, that CPU and OS support
  std::vector<std::string> cpu_features;  // for people: "avx2", "avx512f", "neon", …
  uint16_t elf_machine = 0;               // EM_… of this process

  // The newest symbol version that each library provides here, by prefix: {"GLIBC": 2.36,
  // "GLIBCXX": 3.4.30, "CXXABI": 1.3.13, "GCC": 12.0.0}. An absent prefix is unknown.
  std::map<std::string, Version> symbol_versions;

  std::optional<Version> cuda_driver;  // the CUDA version that the driver supports: 13.0
  std::string cuda_driver_release;     // "580.159.03"; empty if unknown
  std::string cuda_problem;     // why there is no CUDA device, for people; empty if there is one
  std::optional<Version> rocm;  // the version of the user-space stack
  std::string rocm_problem;
  std::vector<Gpu> gpus;  // the visible ones, in the order in which programs see them
  // True if there are several different GPUs, and it is unknown which has which index until the
  // driver is initialised (CUDA_DEVICE_ORDER is FASTEST_FIRST, the default).
  bool gpu_order_uncertain = false;

  // Libraries that are already in this process, by LibraryClaim's names: {"torch": 2.13.0,
  // "cudart": 13.0}. It includes "python" if the process holds an interpreter.
  std::map<std::string, Version> in_process;
};

// Probes the machine. Never creates a CUDA context and never calls cuInit in this process, so a
// child that is forked later may use CUDA. Takes milliseconds the first time. The result is cached
// for the process, except in_process, which is read again each time. Thread-safe.
MachineFacts probe_machine();

}  // namespace opdock
