// The chain's records and settings as JSON.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "chain/chain.h"
#include "chain/settings.h"
#include "report/json.h"

namespace opdock {

Report to_json(const StepReason& reason);
// {"device", "dry", "serves", "steps": [{"step", "outcome", "text", "reasons", "changed"}],
// "story"}
Report to_json(const ChainRecord& record);
// All reasons of all steps, each with "step".
Report flat_reasons(const ChainRecord& record);
// {"build": {"value", "from"}, …}
Report to_json(const Settings& settings);
// Returns what a runner of references gets: the record with "op" and "warn".
std::string reference_report(const ChainRecord& record, const std::string& op, bool warn);

// Store and take this thread's reasons for opdock_take_reasons_json.
void keep_reasons(Report reasons);
Report take_reasons();

}  // namespace opdock
