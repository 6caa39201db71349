// What the user decided about building, compiling and standing in, and where it was said.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "discover/catalog.h"
#include "opdock/opdock.h"

namespace opdock {

struct Setting {
  std::string value;
  std::string place = "default";  // "opdock_options", "OPDOCK_BUILD", "/etc/opdock/config.toml:3"
  bool operator==(const Setting&) const = default;
};

struct Settings {
  Setting build{"auto"};     // "auto", "never", "always"
  Setting jit{"auto"};       // "auto", "never"
  Setting fallback{"warn"};  // "warn", "error", "silent"
  Setting cuda_archs;        // from configuration files alone: the grammar is core/arch's
  Setting hip_archs;
};

// The configuration files in the order in which they are read; a later one overrides. Under
// AT_SECURE the system's alone.
std::vector<std::string> config_files(const SearchEnvironment& environment);

// Defaults, then each of `files` that exists, then the environment, then the options (may be NULL).
// A text in *problems, which names the place, for each value that is none, file that is no TOML,
// has an unknown key, or could have been written by another user; what is said elsewhere holds
// then.
void read_settings(const std::vector<std::string>& files, const SearchEnvironment& environment,
                   const opdock_options* options, Settings* settings,
                   std::vector<std::string>* problems);

}  // namespace opdock
