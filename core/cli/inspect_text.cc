// SPDX-License-Identifier: Apache-2.0
#include "inspect_text.h"

#include <algorithm>
#include <tuple>

#include "base/quantity.h"
#include "base/texts.h"
#include "fmt/format.h"
#include "report_text.h"

namespace opdock::cli {
namespace {

constexpr size_t kLabelColumns = 18;
constexpr size_t kMaxSkipped = 10;  // printed one by one

// Prints a list; a long one continues under its first item. Lists are wrapped even if stdout is not
// a terminal, because people read this output, even of a library with thousands of symbols, and
// programs use --json.
void print_list(const char* label, const Report& list) {
  constexpr size_t kMaxItems = 100;
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
  for (size_t i = 0; i < std::min(list.size(), kMaxItems); ++i) {
    add(printable(list[i].get<std::string>()));
  }
  if (list.size() > kMaxItems) {
    for (const std::string& word :
         {std::string("…"), fmt::format("and {}", list.size() - kMaxItems), std::string("more:"),
          std::string("see --json")}) {
      add(word);
    }
  }
  print(text + "\n");
}

void print_yes(const char* label, const Report& value) {
  if (value.get<bool>()) print(fmt::format("{:<18}yes\n", label));
}

Style gpu_style(const std::string& code) {
  return code == "native" || code == "ptx" ? Style::kGood
         : code == "none"                  ? Style::kBad
         : code == "undecided"             ? Style::kUnsure
                                           : Style::kPlain;
}

std::vector<Cell> head(const Report& machine) {
  std::vector<Cell> row;
  for (const char* title : {"PACKAGE", "VERSION", "FILES", "VERDICT"}) {
    row.push_back({title, Style::kDim});
  }
  for (const Report& gpu : machine.at("gpus")) row.push_back({gpu_title(gpu), Style::kDim});
  return row;
}

std::vector<Cell> package_row(const Report& package) {
  const std::string verdict = text_of(package, "verdict");
  std::vector<Cell> row = {{text_of(package, "name"), Style::kBold},
                           {text_of(package, "version", "-")},
                           {std::to_string(package.at("files").size())},
                           {verdict, verdict_style(verdict)}};
  for (const Report& cell : package.at("gpus")) {
    row.push_back({gpu_text(cell), gpu_style(text_of(cell, "code"))});
  }
  return row;
}

// Prints how many of the package's files are not usable, and the first cause.
void print_cause(const Report& package) {
  const Report& cause = package.at("cause");
  if (cause.is_null()) return;
  const Report& files = package.at("files");
  const auto bad = std::count_if(files.begin(), files.end(),
                                 [](const Report& file) { return file.at("adds") != "usable"; });
  if (const std::string file = text_of(cause, "file"); !file.empty()) {
    const std::string of =
        files.size() > 1 ? fmt::format("{} of {} files, first ", bad, files.size()) : "";
    print(paragraph(of + file, 2));
  }
  print_reason(cause, 4);
}

void print_skipped(const Report& skipped) {
  if (skipped.empty()) return;
  print("\n" + styled("Not looked at:", Style::kDim) + "\n");
  for (size_t i = 0; i < std::min(skipped.size(), kMaxSkipped); ++i) {
    const Report& reason = skipped[i].at("reason");
    print(paragraph(text_of(skipped[i], "path") + ": " + text_of(reason, "code") + ": " +
                        text_of(reason, "text"),
                    2));
  }
  if (skipped.size() > kMaxSkipped) {
    print(fmt::format("  … and {} more: see --json\n", skipped.size() - kMaxSkipped));
  }
}

void print_changes(const Report& report, const char* member, const char* label) {
  constexpr size_t kMaxLines = 40;
  const Report& changes = report.at(member);
  for (const auto& [name, sign, style] :
       {std::tuple("removed", "- ", Style::kBad), std::tuple("added", "+ ", Style::kGood)}) {
    const Report& list = changes.at(name);
    for (size_t i = 0; i < std::min(list.size(), kMaxLines); ++i) {
      print(styled(fmt::format("{}{:<{}}{}", sign, label, kLabelColumns,
                               printable(list[i].get<std::string>())),
                   style) +
            "\n");
    }
    if (list.size() > kMaxLines) {
      print(fmt::format("  … and {} more: see --json\n", list.size() - kMaxLines));
    }
  }
}

}  // namespace

std::string gpu_title(const Report& gpu) {
  std::vector<std::string> names;
  for (const Report& device : gpu.at("devices")) names.push_back(device.get<std::string>());
  if (names.empty()) return printable(gpu.at("arch").get<std::string>());  // a described GPU
  return printable(fmt::format("{} ({})", gpu.at("arch").get<std::string>(), join_some(names, 2)));
}

std::string gpu_text(const Report& cell) {
  const std::string code = text_of(cell, "code"), image = text_of(cell, "image");
  if (code == "native") return image.empty() ? "native" : "native " + image;
  if (code == "ptx") return image.empty() ? "compiled later" : "PTX (JIT) " + image;
  if (code == "undecided") return "unsure";
  return code == "none" ? "none" : "-";
}

std::string machine_text(const Report& machine) {
  std::vector<std::string> parts;
  for (const Report& gpu : machine.at("gpus")) parts.push_back(text_of(gpu, "arch"));
  const std::string driver = text_of(machine, "driver");
  if (machine.at("cuda").is_string()) {
    parts.push_back("CUDA " + text_of(machine, "cuda") +
                    (driver.empty() ? "" : " (driver " + driver + ")"));
  }
  if (machine.at("rocm").is_string()) parts.push_back("ROCm " + text_of(machine, "rocm"));
  parts.push_back(text_of(machine, "cpu_arch"));
  for (const auto& [prefix, version] : machine.at("symbol_versions").items()) {
    if (prefix == "GLIBC" || prefix == "GLIBCXX") {
      parts.push_back(prefix + " " + version.get<std::string>());
    }
  }
  return join(parts);
}

std::string counts_text(const Report& report) {
  const Report& summary = report.at("summary");
  const auto number = [&](const char* name) { return summary.at(name).get<uint64_t>(); };
  std::string text = fmt::format("{} of {} usable, {} undecided, {} rejected; {}", number("usable"),
                                 quantity(number("packages"), "package"), number("undecided"),
                                 number("rejected"), quantity(number("files"), "file"));
  if (number("skipped") != 0) text += fmt::format(", {} not looked at", number("skipped"));
  if (number("pure") != 0) {
    text += fmt::format("; {} {} no native code", quantity(number("pure"), "more package"),
                        number("pure") == 1 ? "has" : "have");
  }
  return text + fmt::format(" ({:.1f} s)", summary.at("seconds").get<double>());
}

void print_file(const Report& report) {
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
}

void print_diff(const Report& report) {
  for (const char* name : {"a", "b"}) {
    const Report& file = report.at(name);
    const bool is_a = *name == 'a';
    print(
        styled(fmt::format("{} {}\n", is_a ? "---" : "+++", text_of(file, "path")), Style::kBold));
    print_reasons(file.at("reasons"), 4, true);
  }
  const auto print_numbers = [&](const char* label, const char* member, const char* unit) {
    const int64_t a = report.at("a").at(member), b = report.at("b").at(member);
    if (a == 0 && b == 0) return;
    print(fmt::format("  {:<{}}{} -> {} {} ({:+d})\n", label, kLabelColumns, a, b, unit, b - a));
  };
  print_numbers("size", "size", "bytes");
  print_numbers("images", "images", "images");
  print_numbers("in images", "image_bytes", "bytes");
  const std::pair<const char*, const char*> kMembers[] = {
      {"archs", "architecture"},      {"toolkits", "toolkit"}, {"needed", "needs"},
      {"symbol_versions", "version"}, {"traits", "is or has"}, {"exports", "exports"},
      {"undefined", "wants"}};
  for (const auto& [member, label] : kMembers) print_changes(report, member, label);
  if (report.at("equal").get<bool>()) print("  nothing else differs\n");
}

void print_survey(const Report& report) {
  const Report& machine = report.at("machine");
  if (machine.at("described").get<bool>()) {
    print(styled(paragraph("Judged for " + machine_text(machine), 0), Style::kDim));
  }
  const Report& packages = report.at("packages");
  std::vector<std::vector<Cell>> rows = {head(machine)};
  for (const Report& package : packages) rows.push_back(package_row(package));
  const std::string text = table(rows);
  size_t begin = text.find('\n') + 1;
  if (!packages.empty()) print(text.substr(0, begin));
  for (const Report& package : packages) {
    const size_t end = text.find('\n', begin) + 1;
    print(text.substr(begin, end - begin));
    begin = end;
    std::vector<std::string> archs;
    for (const char* member : {"cuda_archs", "hip_archs"}) {
      for (const Report& arch : package.at(member)) archs.push_back(arch.get<std::string>());
    }
    if (!archs.empty()) {
      print(styled(paragraph("built for " + printable(join(archs, " ")), 2), Style::kDim));
    }
    print_cause(package);
  }
  print_reasons(report.at("reasons"), 0, true);
  print_skipped(report.at("skipped"));
  print("\n" + counts_text(report) + "\n");
}

}  // namespace opdock::cli
