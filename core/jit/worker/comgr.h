// Which architectures a hipRTC knows, according to the code object manager that it compiles with:
// hipRTC itself has no function that says so, and aborts.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace opdock {

// The names of the processors that the libamd_comgr beside the hipRTC at `path` knows, "gfx900
// gfx906 gfx90a …", if it does not take `arch` ("gfx90a:xnack-"); "" if it does, or if there is not
// exactly one such library there, so that nothing can be said.
std::string archs_without(const std::string& path, const std::string& arch);

}  // namespace opdock
