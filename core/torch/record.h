// Has calls recorded for autograd by the library of this torch (recorder.h), if it is there.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <string>

#include "operator.h"
#include "recorder.h"

namespace opdock::torch {

// Opens the library at `path`. wanted: the build of torch in this process, as
// Recorder::built_for. Returns "" or why it cannot be used.
std::string open_recorder(const std::string& path, const std::string& wanted);

// The open recorder; NULL: there is none, and Python records.
extern Recorder* recorder;
// False: Python records all the same.
extern std::atomic<bool> uses_recorder;

// Returns what recorder->begin() takes for an operator, or NULL if calls of it are recorded by
// Python. is_formula: the op is a formula, whose gradients are formulas too.
void* prepare_record(const Operator& op, bool is_formula);

}  // namespace opdock::torch
