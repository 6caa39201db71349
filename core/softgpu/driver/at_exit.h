// The end of the process, and what is written then and before.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace softgpu {

// At exit: waits for the streams' work, reports leaks, writes the counters.
void finish_at_exit();

// Appends the engine's findings since the last call to the configured file. The mutex must be held.
void write_findings();

// A finding of the driver's own: to stderr and the file. The mutex must be held.
void report_finding(const std::string& text);

}  // namespace softgpu
