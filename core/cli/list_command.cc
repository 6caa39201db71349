// opdock list: every plugin found, with its verdict.
// SPDX-License-Identifier: Apache-2.0
#include "commands.h"
#include "fmt/format.h"
#include "report_text.h"

namespace opdock::cli {

int list_command(const std::string& plugin_path, const GpuMachine& machine, bool json, bool all) {
  const Runtime runtime(plugin_path);
  describe(runtime, machine);
  Report report = read_report([&](char** out, char* error, uint32_t size) {
    return opdock_list_json(runtime.get(), 0, out, error, size);
  });
  name_gpus(machine, &report);
  if (json) {
    print_json(report);
    return kGood;
  }
  const Report& plugins = report.at("plugins");
  if (plugins.empty()) {
    print("No plugin was found. `opdock doctor` shows where they are searched.\n");
    return kGood;
  }
  print_plugins(plugins, all);
  size_t usable = 0, binaries = 0, buildable = 0;
  for (const Report& plugin : plugins) {
    usable += plugin.at("usable").get<bool>();
    binaries += plugin.at("kind") == "binary";
    buildable += plugin.at("verdict") == "buildable";
  }
  print(fmt::format("\n{} of {} usable", usable, binaries));
  if (const size_t sources = plugins.size() - binaries; sources != 0) {
    print(fmt::format(", {} of {} source plugins buildable", buildable, sources));
  }
  print("\n");
  return kGood;
}

}  // namespace opdock::cli
