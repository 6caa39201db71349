// The user's choices about building, compiling and fallbacks, and the place of each choice.
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
  Setting cuda_archs;        // only from configuration files; core/arch has the grammar
  Setting hip_archs;
};

// Returns the configuration files in the order in which they are read; a later one overrides. Under
// AT_SECURE only the system's file is read.
std::vector<std::string> config_files(const SearchEnvironment& environment);

// Applies the defaults, then each of `files` that exists, then the environment, then the options
// (may be NULL). Adds a text that names the place to *problems for each invalid value, and for each
// file that is not TOML, has an unknown key, or could have been written by another user. Values
// from other places still hold then.
void read_settings(const std::vector<std::string>& files, const SearchEnvironment& environment,
                   const opdock_options* options, Settings* settings,
                   std::vector<std::string>* problems);

}  // namespace opdock
