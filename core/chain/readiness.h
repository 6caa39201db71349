// Judges how ready this machine is for each way to get an op: binary plugins, run-time compilation
// and building from source.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/reason.h"
#include "facts/machine.h"

namespace opdock {

// Whether one of these ways works here.
struct Readiness {
  std::string name;             // "binary plugins", "building from source", …
  std::string found;            // what it would use: "g++ 12.2.0, Meson 1.12.0"; may be empty
  std::vector<Reason> reasons;  // what is missing or incompatible
  std::string needs;            // another way that must be ready too and is not; else empty
  // "ready"; "not ready" if a reason rejects or `needs` names one; "unsure" if a reason leaves it
  // undecided.
  std::string verdict() const;
};

// Judges the ways by the same rules as building. Starts the tools to ask for their versions (once
// per process), so the first call takes a second; loads no compiler. Thread-safe.
std::vector<Readiness> judge_readiness(const MachineFacts& machine);

}  // namespace opdock
