// Libraries in this process that a plugin may declare.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace opdock {

// Records that `library` ("torch", "python") is in this process in `version` ("2.13.0+cpu"), where
// the caller knows that better than can be found out: Python knows torch.__version__. A later call
// for the same library replaces an earlier one. False if the version cannot be read: nothing is
// recorded then. Thread-safe.
bool note_in_process(const std::string& library, const std::string& version);

}  // namespace opdock
