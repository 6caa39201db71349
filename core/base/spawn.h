// Starting a program.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/child.h"

namespace opdock {

// A file that the program gets: this process's `from` under the number `to`.
struct FdMap {
  int from;
  int to;
};

struct Program {
  std::vector<std::string> words;  // [0]: its absolute path
  // "NAME=value": all of it; NULL: this process's.
  const std::vector<std::string>* environment = nullptr;
  std::string folder = {};  // where it runs; empty: here
};

// Starts it in a process group of its own, with signals as a fresh program expects them: none
// blocked and none ignored, as a host may have them (Python ignores SIGPIPE). Of 0 to 2 those that
// are not in `files` are /dev/null. 0, or errno and *child unchanged. Under NoFork where the end of
// the program shows by a pipe or socket being closed: a forked child would keep it open.
int spawn(const Program& program, std::span<const FdMap> files, Child* child);

}  // namespace opdock
