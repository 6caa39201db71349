// Names of all ops and plugins in the catalogue.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "discover/catalog.h"

namespace opdock {

// Returns the names of all ops of the catalogue's plugins, source plugins included, sorted and
// without duplicates.
std::vector<std::string> op_names(const Catalog& catalog);
// Returns the names of all plugins, likewise.
std::vector<std::string> known_plugins(const Catalog& catalog);

}  // namespace opdock
