// Source plugins: folders with a plugin.toml, which the host can build.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "discover/catalog.h"
#include "trust/trust.h"

namespace opdock {

inline constexpr char kManifestName[] = "plugin.toml";

// True if the folder has an entry of that name, whatever it is. `name` is relative to folder_fd.
bool is_source_folder(int folder_fd, const std::string& name);

// Reads and judges one source plugin: its plugin.toml, the op's schemas, whether a device it is
// for is here, and, if `trust` is given, who can write the folder and everything in it. Every
// problem is a reason. Starts nothing. Thread-safe.
SourcePlugin look_at_source(std::string folder, std::string origin, Trust* trust,
                            const MachineFacts& machine);

// The first thing that makes building from `folder` untrusted: what is above it, the folder, or
// anything below it. To be checked again just before a build.
std::optional<Reason> check_source_tree(const std::string& folder, Trust* trust);

// Deselected by name, and found in two places: as marks.h does for files.
void mark_sources(const SearchEnvironment& environment, std::vector<SourcePlugin>* sources);

}  // namespace opdock
