// Finds source plugins: folders with a plugin.toml, which the host can build.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "discover/catalog.h"
#include "trust/trust.h"

namespace opdock {

inline constexpr char kManifestName[] = "plugin.toml";

// Returns true if the folder has an entry of that name (kManifestName), of any kind. `name` is the
// folder, relative to folder_fd.
bool is_source_folder(int folder_fd, const std::string& name);

// Reads and judges one source plugin: its plugin.toml, the op's schemas, whether this machine has a
// device that it supports, and, if `trust` is not NULL, who can write the folder and everything in
// it. Every problem becomes a reason. Starts no process. Thread-safe.
SourcePlugin look_at_source(std::string folder, std::string origin, Trust* trust,
                            const MachineFacts& machine);

// Returns the first reason that makes building from `folder` untrusted: a folder above it, the
// folder itself, or anything below it. Called again just before a build.
std::optional<Reason> check_source_tree(const std::string& folder, Trust* trust);

// Marks the plugins that are deselected by name or found in two places, like marks.h for files.
// In a privileged program (AT_SECURE) this rejects each source that has a manifest.
void mark_sources(const SearchEnvironment& environment, std::vector<SourcePlugin>* sources);

}  // namespace opdock
