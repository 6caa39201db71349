// The ops that there are.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "discover/catalog.h"

namespace opdock {

// All op names of the catalogue's plugins, sources too, sorted, each once.
std::vector<std::string> known_ops(const Catalog& catalog);
// All names of plugins, likewise.
std::vector<std::string> known_plugins(const Catalog& catalog);

}  // namespace opdock
