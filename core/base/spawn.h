// Starts programs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/child.h"

namespace opdock {

// A file descriptor for the program: this process's `from` becomes the program's `to`.
struct FdMap {
  int from;
  int to;
};

struct Program {
  std::vector<std::string> words;  // words[0] is the program's absolute path
  // The whole environment, as "NAME=value". NULL: the program inherits this process's.
  const std::vector<std::string>* environment = nullptr;
  std::string folder = {};  // its working directory; empty: this process's
};

// Starts the program in a process group of its own. Signals are reset as a fresh program expects
// them, none blocked and none ignored, since the host may have changed them (Python ignores
// SIGPIPE). Each of the descriptors 0 to 2 that is not in `files` is opened on /dev/null. Returns
// 0, or errno with *child unchanged. Call it under NoFork if the end of the program is detected by
// a pipe or socket being closed: a forked child would keep it open.
int spawn(const Program& program, std::span<const FdMap> files, Child* child);

}  // namespace opdock
