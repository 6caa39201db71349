// Folders that the build was configured with (`meson setup --prefix`); they are searched last. They
// are compiled into a library of their own, so that all other objects are identical for a prefix, a
// wheel and the build tree.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace opdock {

extern const char* const kConfiguredPluginDir;   // "/usr/lib/opdock/plugins"
extern const char* const kConfiguredLibexecDir;  // "/usr/libexec/opdock": helper programs
extern const char* const kConfiguredDataDir;     // "/usr/share/opdock"

}  // namespace opdock
