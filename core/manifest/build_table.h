// Reads the table [build] of plugin.toml.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "manifest/manifest.h"
#include "manifest/toml_table.h"

namespace opdock {

// Checks the table against the sources and ops that `manifest` already has.
BuildNeeds read_build(const toml::table& toml, const Manifest& manifest,
                      std::vector<Mistake>* mistakes);

}  // namespace opdock
