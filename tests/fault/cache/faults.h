// Injects faults between the cache and the C library: the Nth call that touches a folder fails or
// kills the process, and the clock can be shifted. For one thread at a time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace opdock::testing {

struct Fault {
  enum What { kFail, kKillBefore, kKillAfter };
  // Name of the function ("open", "write", "fsync", "renameat2", …), or "" for any call that
  // changes the file system. Calls of open count only if they write or create.
  std::string function;
  int nth = 0;  // number of the call, from 1; 0: every call
  What what = kFail;
  int error = 0;
};

// From now on, counts calls on paths below `root` and injects `fault`.
void arm(const std::string& root, const Fault& fault);
// Stops injecting. Returns the counted calls in order, each as "write v1/tmp/…".
std::vector<std::string> disarm();

// Shifts the wall clock by this many seconds; negative shifts it back.
void shift_clock(int64_t seconds);

}  // namespace opdock::testing
