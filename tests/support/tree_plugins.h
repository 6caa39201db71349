// Lists the plugins of this source tree from their plugin.toml files, so that tests of all plugins
// cover a new one automatically. Reads the files with toml++ only, because Opdock's own reader is
// under test.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <toml++/toml.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

namespace opdock_test {

struct TreeOp {
  std::string name;
  std::set<std::string> devices;  // "cpu", "cuda", "rocm"
};

struct TreePlugin {
  std::string name;
  std::vector<TreeOp> ops;
  bool has_kernels = false;    // has a [device] table: its binary contains images or their source
  bool needs_toolkit = false;  // is built only where nvcc or hipcc is installed

  // Whether any op of the plugin runs on the device.
  bool is_for(const std::string& device) const {
    return std::any_of(ops.begin(), ops.end(),
                       [&](const TreeOp& op) { return op.devices.contains(device); });
  }
};

// Returns all plugins, sorted by name.
inline const std::vector<TreePlugin>& tree_plugins() {
  static const std::vector<TreePlugin> all = [] {
    std::vector<TreePlugin> found;
    for (const auto& folder : std::filesystem::directory_iterator(OPDOCK_SOURCE_PLUGINS)) {
      const std::filesystem::path path = folder.path() / "plugin.toml";
      if (!std::filesystem::exists(path)) continue;
      const toml::table file = toml::parse_file(path.string());
      TreePlugin plugin;
      plugin.name = file["name"].value_or("");
      plugin.has_kernels = file.contains("device");
      for (const toml::node& source : *file["sources"].as_array()) {
        const std::filesystem::path type =
            std::filesystem::path(source.value_or(std::string())).extension();
        plugin.needs_toolkit |= type == ".cu" || type == ".hip";
      }
      for (const toml::node& table : *file["op"].as_array()) {
        const toml::table& op = *table.as_table();
        const std::string schema = op["schema"].value_or("");
        plugin.ops.push_back({schema.substr(0, schema.find('(')), {}});
        for (const toml::node& device : *op["devices"].as_array())
          plugin.ops.back().devices.insert(device.value_or(""));
      }
      found.push_back(std::move(plugin));
    }
    std::sort(found.begin(), found.end(),
              [](const TreePlugin& a, const TreePlugin& b) { return a.name < b.name; });
    return found;
  }();
  return all;
}

// Returns the plugins whose binaries contain kernels and that run on `device`: "cuda" or "rocm".
inline std::vector<TreePlugin> plugins_with_kernels(const std::string& device) {
  std::vector<TreePlugin> found;
  for (const TreePlugin& plugin : tree_plugins())
    if (plugin.has_kernels && plugin.is_for(device)) found.push_back(plugin);
  return found;
}

}  // namespace opdock_test
