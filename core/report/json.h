// The type of the JSON reports, and reasons in them (docs/reference/verdicts.md).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "base/reason.h"
#include "nlohmann/json.hpp"

namespace opdock {

using Report = nlohmann::ordered_json;

Report to_json(const Reason& reason);
Report to_json(const std::vector<Reason>& reasons);

}  // namespace opdock
