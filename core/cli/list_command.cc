// opdock list: prints the plugins that are found, with their verdicts.
// SPDX-License-Identifier: Apache-2.0
#include <fnmatch.h>

#include <algorithm>

#include "base/similar_names.h"
#include "base/texts.h"
#include "commands.h"
#include "fmt/format.h"
#include "report_text.h"

namespace opdock::cli {
namespace {

bool matches(const std::string& pattern, const std::string& name) {
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

bool has_name(const Report& plugin, const std::string& pattern) {
  const Report& ops = plugin.at("ops");
  return matches(pattern, name_of(plugin)) || std::any_of(ops.begin(), ops.end(), [&](auto& op) {
           return matches(pattern, op.template get<std::string>());
         });
}

bool serves(const Report& plugin, const std::string& kind) {
  const Report& devices = plugin.at("devices");
  return plugin.at("verdict") != "rejected" &&
         std::any_of(devices.begin(), devices.end(), [&](const Report& device) {
           const std::string name = text_of(device, "device");
           const Report& verdict = device.at("verdict");
           return name.substr(0, name.find(':')) == kind &&
                  (verdict == "usable" || verdict == "buildable");
         });
}

bool is_wanted(const Report& plugin, const ListCommand& command) {
  const auto has = [&](const std::string& pattern) { return has_name(plugin, pattern); };
  return (command.names.empty() || std::any_of(command.names.begin(), command.names.end(), has)) &&
         (command.verdict.empty() || plugin.at("verdict") == command.verdict) &&
         (command.device.empty() || serves(plugin, command.device));
}

// Throws Failure if a name is no plugin's and no op's, whatever the other filters are.
void check_names(const Report& plugins, const std::vector<std::string>& wanted) {
  for (const std::string& name : wanted) {
    const bool is_known = std::any_of(plugins.begin(), plugins.end(),
                                      [&](const Report& plugin) { return has_name(plugin, name); });
    if (is_known) continue;
    std::vector<std::string> known;
    for (const Report& plugin : plugins) {
      known.push_back(name_of(plugin));
      for (const Report& op : plugin.at("ops")) known.push_back(op.get<std::string>());
    }
    std::sort(known.begin(), known.end());
    known.erase(std::unique(known.begin(), known.end()), known.end());
    const std::vector<std::string> similar = similar_names(name, known);
    throw Failure{OPDOCK_NOT_FOUND,
                  fmt::format("list: found no plugin or op named \"{}\"; {}", name,
                              similar.empty() ? "`opdock list` shows what there is"
                                              : fmt::format("did you mean {}?", join_or(similar)))};
  }
}

void print_counts(const Report& plugins, bool details) {
  size_t usable = 0, binaries = 0, buildable = 0, unfit = 0;
  for (const Report& plugin : plugins) {
    usable += plugin.at("usable").get<bool>();
    binaries += plugin.at("kind") == "binary";
    const std::string verdict = text_of(plugin, "verdict");
    buildable += verdict == "buildable";
    unfit += verdict == "rejected" || verdict == "undecided";
  }
  print(fmt::format("\n{} of {} usable", usable, binaries));
  if (const size_t sources = plugins.size() - binaries; sources != 0) {
    print(fmt::format(", {} of {} source plugins buildable", buildable, sources));
  }
  print(unfit != 0 && !details ? "; `opdock list --details` says why the others are not\n" : "\n");
}

}  // namespace

int list_command(const ListCommand& command) {
  const Runtime runtime(command.plugin_path);
  describe(runtime, command.machine);
  Report report = read_report([&](char** out, char* error, uint32_t size) {
    return opdock_list_json(runtime.get(), 0, out, error, size);
  });
  Report& plugins = report.at("plugins");
  const bool is_empty = plugins.empty();
  if (!is_empty) check_names(plugins, command.names);
  Report wanted = Report::array();
  for (Report& plugin : plugins) {
    if (is_wanted(plugin, command)) wanted.push_back(std::move(plugin));
  }
  plugins = std::move(wanted);
  name_gpus(command.machine, &report);  // only here, because --device compares kinds of devices
  if (command.json) {
    print_json(report);
    return kGood;
  }
  if (plugins.empty()) {
    print(is_empty ? "No plugin was found. `opdock doctor` shows where they are searched.\n"
                   : "None of the plugins is like this; `opdock list` shows them.\n");
    return kGood;
  }
  const bool details = command.details || command.all;
  if (details) {
    print_plugins(plugins, command.all);
  } else {
    print_plugin_lines(plugins);
  }
  print_counts(plugins, details);
  return kGood;
}

}  // namespace opdock::cli
