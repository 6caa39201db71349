// Runs another program and returns what it prints.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace opdock::pack {

struct Answer {
  bool ok = false;   // the program ended with status 0
  std::string text;  // standard output and error, at most a megabyte
};

// Runs the program and waits for it. words: its name or path, and its arguments.
Answer output_of(const std::vector<std::string>& words);

}  // namespace opdock::pack
