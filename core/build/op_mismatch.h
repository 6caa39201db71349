// Recognises builds that fail because the code and plugin.toml differ.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/reason.h"

namespace opdock {

// Returns Code::kBuildOp in three cases: the step's first error says that a function has other
// parameters than the schema; it says that OPDOCK_OP names an op that plugin.toml does not have
// (the header that opdock-pack --ops-header writes reports both); or the log says that one of `ops`
// is not defined anywhere.
std::optional<Reason> find_op_mismatch(std::string_view log, const std::string& error,
                                       const std::vector<std::string>& ops);

}  // namespace opdock
