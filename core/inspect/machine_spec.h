// A machine that is described instead of probed: "an sm_100 with driver 570 and glibc 2.28".
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "facts/machine.h"

namespace opdock {

// Values as users write them; empty: not given.
struct MachineSpec {
  // "sm_100", "gfx90a:xnack-", in the order in which programs would see them.
  std::vector<std::string> gpus = {};
  std::string driver = {};     // NVIDIA's: "570", "570.86.15"
  std::string cuda = {};       // in place of a driver, the CUDA version that it supports: "12.8"
  std::string glibc = {};      // "2.28"
  std::string libstdcxx = {};  // GLIBCXX's number: "3.4.25"
  std::string arch = {};       // "x86_64", "aarch64"
  std::string cpu = {};        // "x86-64-v3"
  std::string rocm = {};       // "6.2"

  // Returns whether anything is described. If not, the machine is this one.
  bool is_given() const;
  // Returns whether the machine's libraries are others than this one's.
  bool tells_libraries() const { return !glibc.empty() || !libstdcxx.empty() || !arch.empty(); }
};

// A problem with one value.
struct SpecProblem {
  std::string name;  // the member: "gpu", "driver", …
  std::string found, wanted, advice;
};

// Returns the first problem of a value, or nullopt. Pure.
std::optional<SpecProblem> check_spec(const MachineSpec& spec);

// Returns the machine that a correct `spec` describes. What the spec does not give is taken from
// `here`, with two exceptions: GPUs and their drivers, of which there are none, and what depends on
// a given value, which is unknown and not judged. With another architecture, that is the symbol
// versions; with another C library, the compiler's libraries. A spec that gives nothing returns
// `here`. Pure.
MachineFacts described_machine(const MachineSpec& spec, const MachineFacts& here);

// Returns the CUDA version that a release branch of NVIDIA's driver supports (570: 12.8); nullopt
// for a branch that is older than CUDA 11 or newer than what is known here.
std::optional<Version> cuda_of_driver(uint32_t branch);

}  // namespace opdock
