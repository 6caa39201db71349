// Runs the programs that the engine needs: the compiler, and tools that know source lines.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace softgpu {

// Returns the program's path, from the absolute folders of PATH; empty if there is none.
std::string find_program(const std::string& name);
// Runs words[0] and waits for it; *output gets its stdout and stderr. Returns false unless it ends
// with status 0.
bool run_program(const std::vector<std::string>& words, std::string* output);

}  // namespace softgpu
