// The work at the end of the process, and the findings that are written before or then.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace softgpu {

// Registers the work for the process's exit: waits for the streams, reports leaks, writes the
// counters.
void finish_at_exit();

// Appends the engine's findings since the last call to the configured file. The mutex must be held.
void write_findings();

// Reports a finding of the driver itself, on stderr and in the file. The mutex must be held.
void report_finding(const std::string& text);

}  // namespace softgpu
