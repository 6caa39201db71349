// Reports that the command failed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime.h"
#include "usage.h"

namespace opdock::cli {

// Prints "opdock: …" on stderr and, with `json`, an object on stdout too: {"error": the text,
// "status": the exit status, "reasons": […]}, each reason with the members that every report has.
// Returns the exit status.
int report_error(const Usage& usage, bool json);
int report_error(const Failure& failure, bool json);
int report_error(const std::string& text, bool json);

}  // namespace opdock::cli
