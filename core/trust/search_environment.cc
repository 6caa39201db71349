// SPDX-License-Identifier: Apache-2.0
#include "trust/search_environment.h"

#include <sys/auxv.h>

#include <cstdlib>
#include <string>

namespace opdock {
namespace {

constexpr const char* kVariables[] = {"OPDOCK_PLUGIN_PATH",    "OPDOCK_ADD_PLUGIN_PATH",
                                      "OPDOCK_PLUGINS_SELECT", "OPDOCK_PLUGINS_DISABLE",
                                      "XDG_DATA_HOME",         "XDG_CONFIG_HOME",
                                      "XDG_CACHE_HOME",        "HOME",
                                      "OPDOCK_BUILD",          "OPDOCK_JIT",
                                      "OPDOCK_FALLBACK",       "OPDOCK_CACHE_DIR",
                                      "OPDOCK_CACHE_MAX_BYTES"};

// Returns the variable's value. An empty value counts as unset, as in the XDG specification.
std::optional<std::string> nonempty_variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

// Returns an XDG base folder: the variable if it is an absolute path, else the default below the
// home.
std::string base_folder(const char* name, const std::string& home, const char* fallback,
                        std::vector<Reason>* ignored) {
  const std::optional<std::string> value = nonempty_variable(name);
  if (value && value->front() == '/') return *value;
  if (value) {
    ignored->push_back({Code::kVariableIgnored, std::string(name) + "=" + *value,
                        "an absolute path", std::string("set ") + name + " to an absolute path"});
  }
  return home.empty() ? std::string() : home + fallback;
}

}  // namespace

SearchEnvironment read_search_environment() {
  SearchEnvironment environment;
  if (getauxval(AT_SECURE) != 0) {
    environment.secure = true;
    for (const char* name : kVariables) {
      if (std::getenv(name) == nullptr) continue;
      environment.ignored.push_back(make_reason(
          Code::kVariableIgnored, std::string(name) + " in a program with raised privileges",
          "no influence of the caller on which code is loaded"));
    }
    return environment;
  }
  environment.plugin_path = nonempty_variable("OPDOCK_PLUGIN_PATH");
  environment.add_plugin_path = nonempty_variable("OPDOCK_ADD_PLUGIN_PATH");
  environment.select = nonempty_variable("OPDOCK_PLUGINS_SELECT");
  environment.disable = nonempty_variable("OPDOCK_PLUGINS_DISABLE");
  environment.build = nonempty_variable("OPDOCK_BUILD");
  environment.jit = nonempty_variable("OPDOCK_JIT");
  environment.fallback = nonempty_variable("OPDOCK_FALLBACK");
  std::string home = nonempty_variable("HOME").value_or("");
  if (!home.empty() && home.front() != '/') home.clear();
  environment.data_home = base_folder("XDG_DATA_HOME", home, "/.local/share", &environment.ignored);
  environment.config_home = base_folder("XDG_CONFIG_HOME", home, "/.config", &environment.ignored);
  environment.cache_home = base_folder("XDG_CACHE_HOME", home, "/.cache", &environment.ignored);
  return environment;
}

}  // namespace opdock
