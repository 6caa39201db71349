// Programs that the engine asks: the compiler, and who knows source lines.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace softgpu {

// Its path by the absolute folders of PATH; empty if there is none.
std::string find_program(const std::string& name);
// Runs words[0] to its end; *output: what it writes to stdout and stderr. False if it does not end
// with status 0.
bool run_program(const std::vector<std::string>& words, std::string* output);

}  // namespace softgpu
