// opdock install: a plugin into the user's own folder.
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

}  // namespace

int install_command(const std::string& path, bool json) {
  std::string file = path;
  if (is_source(path)) {
    BuildCommand build;
    build.path = path;
    build.json = json;
    if (const int status = build_for_install(build, &file); status != kGood) return status;
  }
  const Runtime runtime("");
  const Report report = read_report([&](char** out, char* error, uint32_t size) {
    return opdock_install_json(runtime.get(), file.c_str(), out, error, size);
  });
  const bool installed = report.at("path").is_string(), found = report.at("found").get<bool>();
  const int status = installed && report.at("verdict") != "rejected" ? kGood : kUnfit;
  if (json) {
    print_json(report);
    return status;
  }
  const std::string name = styled(name_of(report) + " " + text_of(report, "version"), Style::kBold);
  if (!installed) {
    print(fmt::format("{} was not installed\n", printable(path)));
    print_reasons(report.at("reasons"), 2, false);
    return status;
  }
  print(fmt::format("{} was installed{}\n", name,
                    report.at("replaced").is_string()
                        ? fmt::format(" in the place of {}", text_of(report, "replaced"))
                        : ""));
  print(paragraph(text_of(report, "path"), 2));
  print_reasons(report.at("reasons"), 2, true);
  if (!found) {
    print(
        paragraph("It is not searched there: $OPDOCK_PLUGIN_PATH names other places, or "
                  "$OPDOCK_PLUGINS_SELECT other plugins; `opdock doctor` shows them.",
                  2));
  }
  return status;
}

}  // namespace opdock::cli
