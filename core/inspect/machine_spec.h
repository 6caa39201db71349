// A machine that is described instead of probed: "an sm_100 with driver 570 and glibc 2.28".
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "facts/machine.h"

namespace opdock {

// Texts as people give them; an empty one is not given.
struct MachineSpec {
  std::vector<std::string> gpus =
      {};                      // "sm_100", "gfx90a:xnack-", in the order programs would see them
  std::string driver = {};     // NVIDIA's: "570", "570.86.15"
  std::string cuda = {};       // instead of a driver the CUDA version it supports: "12.8"
  std::string glibc = {};      // "2.28"
  std::string libstdcxx = {};  // GLIBCXX's number: "3.4.25"
  std::string arch = {};       // "x86_64", "aarch64"
  std::string cpu = {};        // "x86-64-v3"
  std::string rocm = {};       // "6.2"

  // Whether anything is described. False: the machine is this one.
  bool is_given() const;
  // Whether the machine's libraries are others than this one's.
  bool tells_libraries() const { return !glibc.empty() || !libstdcxx.empty() || !arch.empty(); }
};

// What is not right about one value.
struct SpecProblem {
  std::string name;  // the member: "gpu", "driver", …
  std::string found, wanted, advice;
};

// The first of them that cannot be, or nullopt. Pure.
std::optional<SpecProblem> check_spec(const MachineSpec& spec);

// The machine that a correct `spec` describes. What it does not give is `here`'s, except GPUs and
// their drivers, of which there are none, and what depends on something given: with another
// architecture the symbol versions, with a C library the compiler's libraries. Such are unknown,
// and not judged. A spec that gives nothing: `here`. Pure.
MachineFacts described_machine(const MachineSpec& spec, const MachineFacts& here);

// The CUDA version that a release branch of NVIDIA's driver supports (570: 12.8); nullopt for one
// that is older than CUDA 11 or newer than what is known here.
std::optional<Version> cuda_of_driver(uint32_t branch);

}  // namespace opdock
