// opdock inspect: one shared object, whatever it is.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "commands.h"
#include "fmt/format.h"
#include "report_text.h"

namespace opdock::cli {
namespace {

constexpr size_t kLabelColumns = 18;

// A long list goes on under its first item. Lists are wrapped also where stdout is no terminal: a
// library of thousands of symbols is for people to read here, programs take --json.
void print_list(const char* label, const Report& list) {
  constexpr size_t kMostItems = 100;
  if (list.empty()) return;
  const size_t width = terminal().width == 0 ? 79 : terminal().width;
  std::string text = fmt::format("{:<{}}", label, kLabelColumns);
  size_t column = kLabelColumns;
  const auto add = [&](const std::string& item) {
    if (column > kLabelColumns && column + 1 + columns(item) > width) {
      text += "\n" + std::string(kLabelColumns, ' ');
      column = kLabelColumns;
    } else if (column > kLabelColumns) {
      text += ' ';
      ++column;
    }
    text += item;
    column += columns(item);
  };
  for (size_t i = 0; i < std::min(list.size(), kMostItems); ++i) {
    add(printable(list[i].get<std::string>()));
  }
  if (list.size() > kMostItems) {
    for (const std::string& word :
         {std::string("…"), fmt::format("and {}", list.size() - kMostItems), std::string("more:"),
          std::string("see --json")}) {
      add(word);
    }
  }
  print(text + "\n");
}

void print_yes(const char* label, const Report& value) {
  if (value.get<bool>()) print(fmt::format("{:<18}yes\n", label));
}

}  // namespace

int inspect_command(const std::string& path, bool json) {
  const Runtime runtime("");
  const Report report = read_report([&](char** out, char* error, uint32_t size) {
    return opdock_inspect_json(runtime.get(), path.c_str(), out, error, size);
  });
  const int status = report.at("usable").get<bool>() ? kGood : kUnfit;
  if (json) {
    print_json(report);
    return status;
  }
  const std::string verdict = text_of(report, "verdict");
  print(styled(text_of(report, "path"), Style::kBold) + "  " +
        styled(verdict, verdict_style(verdict)) + "\n");
  print_reasons(report.at("reasons"), 2, true);
  if (report.at("name").is_string()) {
    print(fmt::format("{:<18}{} {}\n", "plugin", name_of(report), text_of(report, "version")));
    print_list("ops", report.at("ops"));
    print(paragraph(fmt::format("{:<18}{}", "devices", devices_text(report)), 0));
  }
  print_list("CUDA", report.at("cuda_archs"));
  print_list("HIP", report.at("hip_archs"));
  print_list("needs", report.at("needed"));
  print_list("symbol versions", report.at("symbol_versions"));
  print_list("unresolved", report.at("unresolved"));
  if (const std::string runpath = text_of(report, "runpath"); !runpath.empty()) {
    print(fmt::format("{:<18}{}\n", "runpath", runpath));
  }
  print_yes("executable stack", report.at("executable_stack"));
  print_yes("static TLS", report.at("static_tls"));
  print_yes("unique symbols", report.at("unique_symbols"));
  return status;
}

}  // namespace opdock::cli
