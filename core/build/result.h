// Whether what a build made is the plugin that was asked for.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "base/reason.h"
#include "manifest/manifest.h"

namespace opdock {

// Reads the file as any other plugin is read, without running it. NULL: it is an ELF object of this
// machine with the note of that plugin, packed for this Opdock's ABI.
std::optional<Reason> check_result(const std::string& path, const Manifest& manifest);

}  // namespace opdock
