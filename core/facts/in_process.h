// Records the versions of libraries in this process that a plugin may require.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace opdock {

// Records that `library` ("torch", "python") is in this process in `version` ("2.13.0+cpu"). For
// callers that know more than a probe finds out: Python knows torch.__version__. A later call for
// the same library replaces an earlier one. Returns false if the version cannot be parsed; then
// nothing is recorded. Thread-safe.
bool note_in_process(const std::string& library, const std::string& version);

}  // namespace opdock
