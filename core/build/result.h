// Checks that a build's result is the plugin that was requested.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "base/reason.h"
#include "manifest/manifest.h"

namespace opdock {

// Reads the file as any other plugin is read, without running it. Returns nullopt if it is an ELF
// object for this machine with the note of that plugin, packed for this Opdock's ABI.
std::optional<Reason> check_result(const std::string& path, const Manifest& manifest);

}  // namespace opdock
