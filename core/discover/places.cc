// SPDX-License-Identifier: Apache-2.0
#include "discover/places.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "base/configured.h"
#include "base/installed.h"

namespace opdock {
namespace {

std::string absolute(const std::string& path) {
  if (path.front() == '/') return path;
  char* folder = getcwd(nullptr, 0);
  const std::string joined = folder == nullptr ? path : std::string(folder) + "/" + path;
  std::free(folder);
  return joined;
}

void add_list(const std::string& list, const char* origin, bool consent,
              std::vector<Place>* places) {
  for (const std::string& entry : split_list(list)) {
    places->push_back({absolute(entry), origin, consent, true});
  }
}

}  // namespace

std::vector<std::string> split_list(std::string_view list) {
  std::vector<std::string> entries;
  while (!list.empty()) {
    const size_t colon = list.find(':');
    if (colon != 0) entries.emplace_back(list.substr(0, colon));
    if (colon == std::string_view::npos) break;
    list.remove_prefix(colon + 1);
  }
  return entries;
}

std::vector<Place> search_places(const SearchOptions& options) {
  std::vector<Place> places;
  if (options.has_plugin_path) {
    add_list(options.plugin_path, "plugin_path", true, &places);
    return places;
  }
  const SearchEnvironment& environment = options.environment;
  if (environment.add_plugin_path) {
    add_list(*environment.add_plugin_path, "OPDOCK_ADD_PLUGIN_PATH", true, &places);
  }
  if (environment.plugin_path) {
    add_list(*environment.plugin_path, "OPDOCK_PLUGIN_PATH", true, &places);
    return places;
  }
  const auto add_default = [&](const std::string& path) {
    places.push_back({path, path, false, false});
  };
  if (!environment.data_home.empty()) add_default(environment.data_home + "/opdock/plugins");
  add_list(options.package_path, "package_path", false, &places);
  add_default("/etc/opdock/plugins.d");
  add_default(kConfiguredPluginDir);
  // In a relocated prefix or a wheel, the plugins are next to the library.
  const std::string folder = own_folder();
  if (!folder.empty()) add_default(folder + "/opdock/plugins");
  // The source plugins of the installation come last.
  if (!installed().plugin_sources.empty()) add_default(installed().plugin_sources);
  return places;
}

}  // namespace opdock
