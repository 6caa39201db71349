// opdock install and uninstall: put a plugin into the user's own folder, or into another one, and
// remove it.
// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include "commands.h"
#include "fmt/format.h"
#include "report_text.h"

namespace opdock::cli {
namespace {

bool is_source(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error) ||
         std::filesystem::path(path).filename() == "plugin.toml";
}

Report options_of(const InstallCommand& command) {
  Report options = Report::object();
  if (!command.folder.empty()) options["folder"] = command.folder;
  if (command.force) options["force"] = true;
  return options;
}

std::string versioned(const Report& report) {
  return styled(name_of(report) + " " + text_of(report, "version"), Style::kBold);
}

}  // namespace

int install_command(const InstallCommand& command) {
  std::string file = command.path;
  if (is_source(command.path)) {
    BuildCommand build;
    build.path = command.path;
    build.json = command.json;
    if (const int status = build_for_install(build, &file); status != kGood) return status;
  }
  const Runtime runtime("");
  const Report report = read_report([&](char** out, char* error, uint32_t size) {
    return opdock_install_json(runtime.get(), file.c_str(), options_of(command).dump().c_str(), out,
                               error, size);
  });
  const bool installed = report.at("path").is_string(), found = report.at("found").get<bool>();
  const bool is_wanted = command.force || report.at("verdict") != "rejected";
  const int status = installed && is_wanted ? kGood : kExitUnusable;
  if (command.json) {
    print_json(report);
    return status;
  }
  if (!installed) {
    print(fmt::format("{} was not installed\n", printable(command.path)));
    print_reasons(report.at("reasons"), 2, false);
    return status;
  }
  print(fmt::format("{} was installed{}\n", versioned(report),
                    report.at("replaced").is_string()
                        ? fmt::format(" in the place of {}", text_of(report, "replaced"))
                        : ""));
  print(paragraph(text_of(report, "path"), 2));
  print_reasons(report.at("reasons"), 2, true);
  if (!found) {
    print(
        paragraph(command.folder.empty()
                      ? "It is not searched there: $OPDOCK_PLUGIN_PATH names other places, or "
                        "$OPDOCK_PLUGINS_SELECT other plugins; `opdock doctor` shows them."
                      : "It is not searched there: name the folder in $OPDOCK_ADD_PLUGIN_PATH, or "
                        "by --plugin-path.",
                  2));
  }
  return status;
}

int uninstall_command(const std::string& name, bool json) {
  const Runtime runtime("");
  const Report report = read_report([&](char** out, char* error, uint32_t size) {
    return opdock_uninstall_json(runtime.get(), name.c_str(), out, error, size);
  });
  if (json) {
    print_json(report);
    return kGood;
  }
  print(fmt::format("{} was removed\n", versioned(report)));
  print(paragraph(text_of(report, "path"), 2));
  if (report.at("path_left").is_string()) {
    print(paragraph("Another one is found: " + text_of(report, "path_left"), 2));
  }
  return kGood;
}

}  // namespace opdock::cli
