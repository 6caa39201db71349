// Writes the Meson project around one source plugin, and returns the commands that build it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "build/builder.h"
#include "build/tools.h"

namespace opdock {

// Paths below the private folder of a build.
struct ProjectFolders {
  explicit ProjectFolders(const std::string& folder);
  std::string all;        // the folder itself
  std::string project;    // the copy of share/opdock/plugin-build
  std::string plugin;     // the copy of the plugin's source, in `project`
  std::string build;      // Meson's build folder
  std::string temporary;  // the compilers' temporary files
  std::string native;     // Meson's native file
};

// Copies the wrapper project and writes what describes this plugin: the native file with the tools'
// absolute paths, and the plugin's meson.build if it has none. The plugin's source must be there
// already. Returns false and adds a reason if the files cannot be written.
bool write_project(const ProjectFolders& folders, const Manifest& manifest,
                   const BuildOptions& options, const BuildTools& tools,
                   std::vector<Reason>* reasons);

// Return the commands to run in `folders.all`.
std::vector<std::string> setup_command(const BuildTools& tools);
std::vector<std::string> compile_command(const BuildTools& tools, int jobs);

// Returns the number of cores for this process (its affinity and its control group's quota count),
// or fewer if the free memory has room for fewer compilers; at least 1.
int default_jobs(const Languages& languages);

}  // namespace opdock
