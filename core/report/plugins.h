// Plugins in the JSON reports; docs/reference/verdicts.md describes the members.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "discover/catalog.h"
#include "report/json.h"

namespace opdock {

// Returns "cpu" or "cuda:0"; "cuda" if this machine has no such GPU.
std::string device_name(const DeviceVerdict& device);

// Returns one plugin as `opdock list` shows it.
Report summary(const Candidate& candidate);
// Returns one source plugin, likewise; "verdict" is "buildable" if nothing speaks against a build.
Report summary(const SourcePlugin& source);
// Returns one file as `opdock inspect` shows it: the summary and the file's properties.
Report details(const Candidate& candidate);

}  // namespace opdock
