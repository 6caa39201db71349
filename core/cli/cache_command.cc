// opdock cache: shows and tidies what was compiled and built.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <ctime>
#include <filesystem>

#include "base/quantity.h"
#include "commands.h"
#include "fmt/format.h"
#include "report_text.h"

namespace opdock::cli {
namespace {

std::string size_text(const Report& value) {
  double size = static_cast<double>(value.get<uint64_t>());
  for (const char* unit : {"B", "KiB", "MiB", "GiB"}) {
    if (size < 1024) return fmt::format("{:.{}f} {}", size, *unit == 'B' ? 0 : 1, unit);
    size /= 1024;
  }
  return fmt::format("{:.1f} TiB", size);
}

std::string time_text(const Report& value) {
  const std::time_t seconds = value.get<int64_t>();
  std::tm time{};
  char text[32] = "";
  if (localtime_r(&seconds, &time) == nullptr) return "-";
  return std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &time) > 0 ? text : "-";
}

size_t count_of(const Report& report, const char* state) {
  const Report& entries = report.at("entries");
  return static_cast<size_t>(
      std::count_if(entries.begin(), entries.end(),
                    [&](const Report& entry) { return entry.at("state") == state; }));
}

void print_entries(const Report& report, bool only_bad) {
  std::vector<std::vector<Cell>> rows = {{{"SUBJECT", Style::kDim},
                                          {"KIND", Style::kDim},
                                          {"SIZE", Style::kDim},
                                          {"USED", Style::kDim},
                                          {"KEY", Style::kDim},
                                          {"MADE BY", Style::kDim}}};
  for (const Report& entry : report.at("entries")) {
    const bool is_good = entry.at("state") == "good";
    if (is_good && only_bad) continue;
    const std::string problem = text_of(entry, "state") + ": " + text_of(entry, "problem");
    rows.push_back(
        {{is_good ? text_of(entry, "subject") : problem, is_good ? Style::kBold : Style::kBad},
         {text_of(entry, "kind")},
         {size_text(entry.at("bytes"))},
         {time_text(entry.at("used"))},
         {text_of(entry, "key").substr(0, 12)},
         {text_of(entry, "maker")}});
  }
  if (rows.size() > 1) print(table(rows));
}

void print_result(const std::string& action, const std::string& file, const Report& report) {
  const std::string folder = text_of(report, "folder");
  const auto number = [&](const char* key) { return report.at(key).get<size_t>(); };
  const auto entries = [&](const char* key) { return quantity(number(key), "entry"); };
  const auto size = [&](const char* key) { return size_text(report.at(key)); };
  if (action == "ls") {
    print_entries(report, false);
    print(fmt::format("{}{} in {} of at most {}, in {}\n", report.at("entries").empty() ? "" : "\n",
                      size("bytes"), quantity(report.at("entries").size(), "entry"),
                      size("max_bytes"), folder));
  } else if (action == "verify") {
    print_entries(report, true);
    const size_t good = count_of(report, "good"), damaged = count_of(report, "damaged");
    print(fmt::format("{} {} good, {} {} damaged{}\n", quantity(good, "entry"),
                      good == 1 ? "is" : "are", damaged, damaged == 1 ? "is" : "are",
                      damaged == 0 ? "" : " and set aside, to be made again"));
  } else if (action == "gc") {
    if (report.at("busy").get<bool>()) {
      print("Another process is at it.\n");
      return;
    }
    print(fmt::format("removed {} ({}) and {}; {} are left{}\n", entries("removed"),
                      size("removed_bytes"), quantity(number("swept"), "temporary file"),
                      size("bytes"),
                      number("in_use") == 0 ? "" : fmt::format(" ({} in use)", entries("in_use"))));
  } else if (action == "clear") {
    print(fmt::format(
        "removed {} ({}) from {}{}\n", entries("removed"), size("removed_bytes"), folder,
        number("in_use") == 0 ? "" : fmt::format("; kept {} in use", entries("in_use"))));
  } else if (action == "export") {
    for (const Report& path : report.at("left_out")) {
      print_error("left out " + printable(path.get<std::string>()));
    }
    print(
        fmt::format("wrote {} ({}) to {}\n", entries("exported"), size("bytes"), printable(file)));
  } else {
    print(fmt::format("took over {} from {}; already there: {}\n", entries("imported"),
                      printable(file), number("present")));
  }
}

}  // namespace

int cache_command(const std::string& action, const std::string& file, bool trust, bool json) {
  const std::string path =
      file.empty() ? file : std::filesystem::absolute(file).lexically_normal().string();
  const Report report = read_report([&](char** out, char* error, uint32_t size) {
    const char* const asked = trust ? "import-trusted" : action.c_str();
    return opdock_cache_json(asked, path.c_str(), out, error, size);
  });
  if (json) {
    print_json(report);
  } else {
    print_result(action, path, report);
  }
  const bool has_bad =
      (action == "verify" && count_of(report, "good") < report.at("entries").size()) ||
      (action == "export" && !report.at("left_out").empty());
  return has_bad ? kExitUnusable : kGood;
}

}  // namespace opdock::cli
