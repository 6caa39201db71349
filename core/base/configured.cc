// SPDX-License-Identifier: Apache-2.0
#include "base/configured.h"

namespace opdock {

const char* const kConfiguredPluginDir = OPDOCK_PLUGINDIR;
const char* const kConfiguredLibexecDir = OPDOCK_LIBEXECDIR;
const char* const kConfiguredDataDir = OPDOCK_DATADIR;

}  // namespace opdock
