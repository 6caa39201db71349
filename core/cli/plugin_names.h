// Finds a plugin by its name, which may be given wherever a path is.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace opdock::cli {

// Each returns `text` itself if it is a path (it has a slash, or something of that name is here),
// else the path of what the search finds under this name, a plugin's or an op's. Throws Usage if
// there is none. plugin_path: as for Runtime.

// Returns the folder of a source plugin.
std::string source_named(const std::string& text, const std::string& plugin_path);
// Returns the folder of a source plugin as above; if there is none, the file of a binary plugin.
std::string plugin_named(const std::string& text, const std::string& plugin_path);
// Returns the file of a binary plugin.
std::string file_named(const std::string& text);

}  // namespace opdock::cli
