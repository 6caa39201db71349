// What a reason says to people.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/reason.h"

namespace opdock {

// A reason without its code, its advice and a full stop: "found ABI 1.0, wanted ABI 0.x", "no CUDA
// driver: libcuda.so.1 was not found". What was found may have several lines, such as a compiler's;
// they are kept. to_text adds code and advice. No field of a reason holds what this makes of
// another.
std::string sentence(const Reason& reason);

// "abi-major: found ABI 1.0, wanted 0.x; rebuild the plugin": what opdock-pack reports to the build
// that started it, always in this form. Further lines of what was found follow; parse_line does not
// see them.
std::string to_line(const Reason& reason);
std::optional<Reason> parse_line(std::string_view line);

}  // namespace opdock
