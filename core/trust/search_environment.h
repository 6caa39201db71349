// Reads the environment variables that affect how plugins are searched and trusted.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/reason.h"

namespace opdock {

// The variables that discovery depends on, read once. Under AT_SECURE none is used: `secure` is
// set, every other member is empty, and `ignored` names each variable that was there.
struct SearchEnvironment {
  bool secure = false;
  std::optional<std::string> plugin_path;      // OPDOCK_PLUGIN_PATH: replaces the default places
  std::optional<std::string> add_plugin_path;  // OPDOCK_ADD_PLUGIN_PATH: searched before the others
  std::optional<std::string> select;           // OPDOCK_PLUGINS_SELECT: globs, colon-separated
  std::optional<std::string> disable;          // OPDOCK_PLUGINS_DISABLE
  std::optional<std::string> build;            // OPDOCK_BUILD
  std::optional<std::string> jit;              // OPDOCK_JIT
  std::optional<std::string> fallback;         // OPDOCK_FALLBACK
  std::string data_home;                       // $XDG_DATA_HOME, else ~/.local/share; may be empty
  std::string config_home;                     // $XDG_CONFIG_HOME, else ~/.config
  std::string cache_home;                      // $XDG_CACHE_HOME, else ~/.cache
  std::vector<Reason> ignored;
};

SearchEnvironment read_search_environment();

}  // namespace opdock
