// Implements `opdock doctor`: reports what this machine has, what is missing, and what each missing
// item is needed for.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "chain/settings.h"
#include "discover/catalog.h"
#include "facts/machine.h"
#include "report/json.h"

namespace opdock {

// setting_problems: from read_settings().
Report diagnosis(const Catalog& catalog, const MachineFacts& machine, const SearchOptions& search,
                 const Settings& settings, const std::vector<std::string>& setting_problems);

}  // namespace opdock
