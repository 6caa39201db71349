// opdock doctor: reports what this machine has, and what is missing for what.
// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>

#include "commands.h"
#include "fmt/format.h"
#include "python_program.h"
#include "report_text.h"

namespace opdock::cli {

int doctor_command(const std::string& plugin_path, bool json) {
  opdock_options options = default_options(plugin_path);
  options.flags = OPDOCK_OPTIONS_DIAGNOSE;  // invalid settings are part of the report
  const Runtime runtime(options);
  const Report report = read_report([&](char** out, char* error, uint32_t size) {
    return opdock_doctor_json(runtime.get(), out, error, size);
  });
  bool good = report.at("plugins").at("usable").get<size_t>() > 0;
  for (const Report& check : report.at("checks")) {
    if (check.at("name") == "settings" && !check.at("ok").get<bool>()) good = false;
  }
  const int status = good ? kGood : kExitUnusable;
  if (json) {
    print_json(report);
    return status;
  }
  print(fmt::format("Opdock {}, plugin ABI {}\n\n", text_of(report, "version"),
                    text_of(report, "abi")));
  for (const Report& check : report.at("checks")) {
    const bool is_ok = check.at("ok").get<bool>();
    print(styled(is_ok ? "yes  " : "no   ", is_ok ? Style::kGood : Style::kUnsure));
    print(paragraph(fmt::format("{:<14} {}", text_of(check, "name"), text_of(check, "found")), 0));
    if (is_ok) continue;
    print(paragraph("for " + text_of(check, "for"), 20));
    print(paragraph("-> " + text_of(check, "advice"), 20));
  }
  print("\nAn op can come from:\n");
  for (const Report& way : report.at("ways")) {
    const std::string verdict = text_of(way, "verdict");
    const Style style = verdict == "ready"    ? Style::kGood
                        : verdict == "unsure" ? Style::kUnsure
                                              : Style::kBad;
    const std::string label = fmt::format("{:<10}", verdict);
    const std::string found = text_of(way, "found"), needs = text_of(way, "needs");
    std::string text = label + fmt::format("{:<27}", text_of(way, "name")) + found;
    if (!needs.empty()) text += fmt::format("{}needs {}", found.empty() ? "" : "; ", needs);
    text.erase(text.find_last_not_of(' ') + 1);
    std::string block = paragraph(text, 2);
    block.replace(2, label.size(), styled(label, style));
    print(block);
    print_reasons(way.at("reasons"), 12, true);
  }
  const Report& cache = report.at("cache");
  print(paragraph(
      fmt::format("\nWhat is made is kept in {}{}.", text_of(cache, "folder", "no folder"),
                  cache.at("usable").get<bool>() ? "" : ", which cannot be used"),
      0));
  print_reasons(cache.at("reasons"), 2, true);
  print("\nPlugins are searched in, in this order:\n");
  for (const Report& place : report.at("search")) {
    const std::string origin = text_of(place, "origin");
    const std::string path = text_of(place, "path");
    print(paragraph(path + (origin == path ? "" : " (" + origin + ")") +
                        (place.at("exists").get<bool>() ? "" : " - not there"),
                    2));
  }
  print("\nWhere no plugin fits:\n");
  for (const auto& [name, setting] : report.at("policy").items()) {
    if (text_of(setting, "value").empty()) continue;
    print(paragraph(
        fmt::format("{:<10} {:<7} ({})", name, text_of(setting, "value"), text_of(setting, "from")),
        2));
  }
  print_reasons(report.at("notices"), 0, true);
  return status;
}

int deepspeed_doctor_command(const std::string& plugin_path, bool json) {
  if (!plugin_path.empty()) setenv("OPDOCK_PLUGIN_PATH", plugin_path.c_str(), 1);
  run_python("doctor",
             "from opdock.compat.deepspeed import _report\n"
             "sys.exit(_report.main(sys.argv[1:]))\n",
             json ? std::vector<std::string>{"--json"} : std::vector<std::string>());
}

}  // namespace opdock::cli
