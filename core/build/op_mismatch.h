// Builds that fail because code and plugin.toml differ.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/reason.h"

namespace opdock {

// Code::kBuildOp where the step's first error is that a function has other parameters than the
// schema, that OPDOCK_OP names an op that plugin.toml does not have (both said by the header that
// opdock-pack --ops-header writes), or where the log says that one of `ops` is defined nowhere.
std::optional<Reason> find_op_mismatch(std::string_view log, const std::string& error,
                                       const std::vector<std::string>& ops);

}  // namespace opdock
