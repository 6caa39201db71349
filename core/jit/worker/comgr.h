// Finds the architectures that a hipRTC knows, from the code object manager that it compiles with:
// hipRTC itself has no function that tells them, and aborts.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace opdock {

// Returns the names of the processors that the libamd_comgr next to the hipRTC at `path` knows,
// "gfx900 gfx906 gfx90a …", if it does not take `arch` ("gfx90a:xnack-"). Returns "" if it does, or
// if there is not exactly one such library there, so that nothing can be said.
std::string archs_without(const std::string& path, const std::string& arch);

}  // namespace opdock
