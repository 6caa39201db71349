// opdock trust: manages the folders that the user vouches for.
// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include "commands.h"
#include "fmt/format.h"
#include "report_text.h"

namespace opdock::cli {
namespace {

void print_list(const Report& report) {
  if (report.at("trusted").empty()) print("No folder was trusted by `opdock trust`.\n");
  for (const Report& folder : report.at("trusted")) {
    const std::string path = folder.get<std::string>();
    std::error_code ignored;
    const bool is_there = std::filesystem::is_directory(path, ignored);
    print(printable(path) + (is_there ? "" : " - not there") + "\n");
  }
  print_reasons(report.at("reasons"), 2, true);
}

}  // namespace

int trust_command(const std::string& action, const std::string& folder, bool json) {
  const std::string path = folder.empty() ? "" : std::filesystem::absolute(folder).string();
  const Report report = read_report([&](char** out, char* error, uint32_t size) {
    return opdock_trust_json(action.c_str(), path.c_str(), out, error, size);
  });
  const bool adds = action == "add" || action == "force";
  const bool is_good = !adds || report.at("trusted").get<bool>();
  if (json) {
    print_json(report);
    return is_good ? kGood : kExitUnusable;
  }
  if (action == "list") {
    print_list(report);
    return kGood;
  }
  const std::string name = text_of(report, "folder");
  if (action == "remove") {
    print(fmt::format("The consent for {} was taken back.\n", name));
    if (report.at("consent").get<bool>()) {
      print("It lies in another folder that is trusted; `opdock trust --list` shows which.\n");
    }
    return kGood;
  }
  if (is_good) {
    print(fmt::format("Plugins in {} are now trusted.\n", name));
    return kGood;
  }
  print(fmt::format("What {} leads to is trusted now, but others decide where it leads:\n", name));
  print_reasons(report.at("reasons"), 2, true);
  return kExitUnusable;
}

}  // namespace opdock::cli
