// The Meson project around one source plugin.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "build/builder.h"
#include "build/tools.h"

namespace opdock {

// Where things are below the folder that a build has for itself.
struct ProjectFolders {
  explicit ProjectFolders(const std::string& folder);
  std::string all;        // the folder itself
  std::string project;    // the copy of share/opdock/plugin-build
  std::string plugin;     // in it: the copy of the plugin's source
  std::string build;      // Meson's build folder
  std::string temporary;  // for the compilers
  std::string native;     // the native file
};

// Copies the wrapper project and writes what describes this plugin: the native file with the tools'
// absolute paths, and the plugin's meson.build if it has none. The plugin's source is there
// already. False and a reason if the files cannot be written.
bool write_project(const ProjectFolders& folders, const Manifest& manifest,
                   const BuildOptions& options, const BuildTools& tools,
                   std::vector<Reason>* reasons);

// To be run in `folders.all`.
std::vector<std::string> setup_command(const BuildTools& tools);
std::vector<std::string> compile_command(const BuildTools& tools, int jobs);

// As many as there are cores for this process (its affinity and its control group's quota count),
// and as the free memory has room for compilers; at least 1.
int default_jobs(const Languages& languages);

}  // namespace opdock
