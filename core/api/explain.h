// Explains how an op or a plugin is resolved, for `opdock explain`.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "chain/runtime.h"
#include "discover/catalog.h"
#include "report/json.h"

namespace opdock {

// Returns the candidate. For a machine that is only described, run-time compilation counts in its
// verdict.
Candidate counted(const Candidate& candidate, const opdock_runtime& runtime);

// Returns how an op or plugin was resolved, or would be. Starts nothing.
Report explanation(opdock_runtime* runtime, const std::string& name);

}  // namespace opdock
