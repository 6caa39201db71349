// Stands between the cache and the C library: lets the Nth call that touches a folder fail, or
// kills the process there, and shifts the clock. For one thread at a time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace opdock::testing {

struct Fault {
  enum What { kFail, kKillBefore, kKillAfter };
  // "open", "write", "fsync", "renameat2", … ; "" for any call that changes the file system. Of
  // open, only calls that write or create count.
  std::string function;
  int nth = 0;  // from 1; 0: every one
  What what = kFail;
  int error = 0;
};

// From now on, calls on paths below `root` are counted and `fault` happens.
void arm(const std::string& root, const Fault& fault);
// Ends it. What was called, "write v1/tmp/…", in order.
std::vector<std::string> disarm();

// The wall clock goes this much ahead (or behind).
void shift_clock(int64_t seconds);

}  // namespace opdock::testing
