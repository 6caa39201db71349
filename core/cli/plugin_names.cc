// SPDX-License-Identifier: Apache-2.0
#include "plugin_names.h"

#include <algorithm>
#include <filesystem>

#include "base/similar_names.h"
#include "base/texts.h"
#include "fmt/format.h"
#include "report_text.h"
#include "value_checks.h"

namespace opdock::cli {
namespace {

// Returns whether the text is a path. A folder here without a plugin.toml does not count, because a
// plugin may have its name.
bool is_a_path(const std::string& text) {
  namespace fs = std::filesystem;
  std::error_code error;
  return !may_be_name(text) && (text.find('/') != text.npos || !fs::is_directory(text, error) ||
                                fs::exists(fs::path(text) / "plugin.toml", error));
}

Report plugins_found(const std::string& plugin_path) {
  const Runtime runtime(plugin_path);
  return read_report([&](char** out, char* error, uint32_t size) {
    return opdock_list_json(runtime.get(), 0, out, error, size);
  });
}

// Returns the path of the first plugin, in the order of the search, that has the name; if there is
// none, of the first that has an op of that name.
std::string find(const Report& plugins, const std::string& kind, const std::string& name) {
  const auto path_of = [](const Report& plugin) {
    const std::filesystem::path path = plugin.at("path").get<std::string>();
    return (path.filename() == "plugin.toml" ? path.parent_path() : path).string();
  };
  for (const Report& plugin : plugins) {
    if (plugin.at("kind") == kind && plugin.at("name") == name) return path_of(plugin);
  }
  for (const Report& plugin : plugins) {
    const Report& ops = plugin.at("ops");
    const bool has_op = std::find(ops.begin(), ops.end(), Report(name)) != ops.end();
    if (plugin.at("kind") == kind && has_op) return path_of(plugin);
  }
  return {};
}

std::string named(const std::string& text, const std::string& plugin_path,
                  const std::vector<std::string>& kinds, const char* wanted) {
  if (is_a_path(text)) return text;
  const Report report = plugins_found(plugin_path);
  const Report& plugins = report.at("plugins");
  for (const std::string& kind : kinds) {
    if (std::string path = find(plugins, kind, text); !path.empty()) return path;
  }
  if (!may_be_name(text)) return text;  // a folder: the command says what it lacks
  std::vector<std::string> known;
  for (const Report& plugin : plugins) {
    const bool is_meant =
        std::find(kinds.begin(), kinds.end(), text_of(plugin, "kind")) != kinds.end();
    if (is_meant && plugin.at("name").is_string()) known.push_back(name_of(plugin));
  }
  std::sort(known.begin(), known.end());
  known.erase(std::unique(known.begin(), known.end()), known.end());
  const std::vector<std::string> similar = similar_names(text, known);
  throw Usage{fmt::format("\"{}\": No such file or plugin", text), wanted,
              similar.empty() ? "correct the path; `opdock list` shows the plugins that are found"
                              : fmt::format("did you mean {}?", join_or(similar)),
              "PATH", ""};
}

}  // namespace

std::string source_named(const std::string& text, const std::string& plugin_path) {
  const std::string path =
      named(text, plugin_path, {"source"}, "a plugin's folder, or the name of a source plugin");
  check_source_plugin("PATH", path);
  return path;
}

std::string plugin_named(const std::string& text, const std::string& plugin_path) {
  const std::string path = named(text, plugin_path, {"source", "binary"},
                                 "a shared object, a plugin's folder, or the name of a plugin");
  check_source_plugin("PATH", path);
  return path;
}

std::string file_named(const std::string& text) {
  if (!may_be_name(text)) return text;
  return named(text, "", {"binary"},
               "a shared object, a wheel, a folder, or the name of a binary plugin");
}

}  // namespace opdock::cli
