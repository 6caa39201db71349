// Converts surveys and their requests to and from JSON: docs/reference/inspect.md describes the
// members.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "inspect/diff.h"
#include "inspect/survey.h"
#include "report/json.h"

namespace opdock {

Report to_json(Survey&& survey);
Report to_json(const FileDiff& diff);

// Returns the request that a JSON text makes. Throws Error (OPDOCK_INVALID_ARGUMENT) for anything
// else.
SurveyRequest read_request(const char* text);

// Returns the GPUs, driver, CUDA and ROCm of a JSON text. Throws Error (OPDOCK_INVALID_ARGUMENT)
// for anything else, and for a machine that cannot exist.
MachineSpec read_gpu_machine(const char* text);

}  // namespace opdock
