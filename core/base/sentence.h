// Formats a reason as text for people.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/reason.h"

namespace opdock {

// Returns a reason without its code, its advice and a full stop: "found ABI 1.0, wanted ABI 0.x",
// "no CUDA driver: libcuda.so.1 was not found". `found` may have several lines, such as a
// compiler's; they are kept. to_text adds code and advice. Do not put the result into a field of
// another reason.
std::string sentence(const Reason& reason);

// Formats a reason as "abi-major: found ABI 1.0, wanted 0.x; rebuild the plugin". opdock-pack
// always uses this form to report errors to the build that started it. Further lines of `found`
// follow; parse_line ignores them.
std::string to_line(const Reason& reason);
std::optional<Reason> parse_line(std::string_view line);

}  // namespace opdock
