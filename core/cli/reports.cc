// list, inspect, explain, doctor and trust: opdock.h's reports as text.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "commands.h"
#include "fmt/format.h"
#include "terminal.h"

namespace opdock::cli {
namespace {

// Not fmt::join: g++ 12 warns of fmt 9's parser of its format when optimising.
std::string join(const std::vector<std::string>& parts, const char* between) {
  std::string text;
  for (const std::string& part : parts) {
    if (!text.empty()) text += between;
    text += part;
  }
  return text;
}

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
}

void print_json(const Report& report) {
  print(report.dump(2, ' ', false, Report::error_handler_t::replace) + "\n");
}

std::string text_of(const Report& object, const char* key, const char* missing = "") {
  const Report& value = object.at(key);
  return value.is_string() ? printable(value.get<std::string>()) : missing;
}

Style verdict_style(const std::string& verdict) {
  return verdict == "usable" || verdict == "buildable" ? Style::kGood
         : verdict == "rejected"                       ? Style::kBad
                                                       : Style::kUnsure;
}

// "cpu, cuda:0 (sm_90), rocm: no-driver": what serves a device, or why nothing does.
std::string devices_text(const Report& plugin) {
  std::vector<std::string> parts;
  for (const Report& device : plugin.at("devices")) {
    std::string part = text_of(device, "device");
    if (device.at("verdict") == "usable") {
      if (device.at("image").is_string()) part += " (" + text_of(device, "image") + ")";
    } else {
      const Report& reasons = device.at("reasons");
      part += ": " + (reasons.empty() ? text_of(device, "verdict") : text_of(reasons[0], "code"));
    }
    parts.push_back(part);
  }
  return parts.empty() ? "-" : join(parts, ", ");
}

std::string archs_text(const Report& plugin) {
  std::vector<std::string> archs = plugin.at("cuda_archs").get<std::vector<std::string>>();
  for (const Report& arch : plugin.at("hip_archs")) archs.push_back(arch.get<std::string>());
  return printable(join(archs, " "));
}

std::string name_of(const Report& plugin) {
  if (plugin.at("name").is_string()) return text_of(plugin, "name");
  const std::string path = text_of(plugin, "path");
  return path.substr(path.rfind('/') + 1);
}

void print_reason(const Report& reason, size_t indent) {
  const std::string code = text_of(reason, "code"), wanted = text_of(reason, "wanted");
  const std::string found = reason.at("found").get<std::string>();
  std::string block;
  if (found.find('\n') != found.npos) {
    block = paragraph(code + ": found", indent) + lines(found, indent + 2) +
            paragraph("wanted " + wanted, indent + 2);
  } else {
    block = paragraph(
        code + ": found " + printable(found) + (wanted.empty() ? "" : ", wanted " + wanted),
        indent);
  }
  const Style style = reason.at("severity") == "reject"      ? Style::kBad
                      : reason.at("severity") == "undecided" ? Style::kUnsure
                                                             : Style::kDim;
  block.replace(indent, code.size(), styled(code, style));
  print(block);
  if (const std::string advice = text_of(reason, "advice"); !advice.empty()) {
    print(paragraph("-> " + advice, indent + 2));
  }
}

void print_reasons(const Report& reasons, size_t indent, bool all) {
  for (const Report& reason : reasons) {
    if (all || reason.at("severity") != "notice") print_reason(reason, indent);
  }
}

std::vector<Cell> plugin_row(const Report& plugin) {
  const std::string verdict = text_of(plugin, "verdict");
  return {{name_of(plugin), Style::kBold},
          {text_of(plugin, "version", "-")},
          {verdict, verdict_style(verdict)},
          {devices_text(plugin)}};
}

// "cpu: binary plugin: …", the steps of one device, each with its reasons.
void print_chain(const Report& chain) {
  for (const Report& record : chain) {
    const bool serves = record.at("serves").get<bool>();
    const bool dry = record.at("dry").get<bool>();
    print(styled(text_of(record, "device"), Style::kBold) + "  " +
          styled(serves ? (dry ? "would be served" : "is served") : "not served",
                 serves ? Style::kGood : Style::kBad) +
          "\n");
    for (const Report& step : record.at("steps")) {
      const std::string outcome = text_of(step, "outcome");
      if (outcome == "not-needed") continue;
      const Style style = outcome == "used"     ? Style::kGood
                          : outcome == "failed" ? Style::kBad
                                                : Style::kDim;
      const std::string label = fmt::format("{:<10}", text_of(step, "step"));
      std::string block = paragraph(label + text_of(step, "text"), 2);
      block.replace(2, label.size(), styled(label, style));
      print(block);
      for (const Report& change : step.at("changed")) {
        print(paragraph("since the last build: " + printable(change.get<std::string>()), 4));
      }
      std::string shown;
      for (const Report& reason : step.at("reasons")) {
        const std::string path = text_of(reason, "path");
        if (path != shown) print(styled(paragraph(path, 4), Style::kDim));
        shown = path;
        print_reason(reason, 6);
      }
    }
  }
}

// The rows aligned, and under each one its path, architectures and reasons.
void print_plugins(const Report& plugins, bool all) {
  std::vector<std::vector<Cell>> rows = {{{"PLUGIN", Style::kDim},
                                          {"VERSION", Style::kDim},
                                          {"VERDICT", Style::kDim},
                                          {"DEVICES", Style::kDim}}};
  for (const Report& plugin : plugins) rows.push_back(plugin_row(plugin));
  const std::string text = table(rows);
  size_t begin = text.find('\n') + 1;
  print(text.substr(0, begin));
  for (const Report& plugin : plugins) {
    const size_t end = text.find('\n', begin) + 1;
    print(text.substr(begin, end - begin));
    begin = end;
    print(styled(paragraph(text_of(plugin, "path"), 2), Style::kDim));
    const std::string archs = archs_text(plugin);
    if (!archs.empty()) print(styled(paragraph("built for " + archs, 2), Style::kDim));
    const std::string verdict = text_of(plugin, "verdict");
    if (all || (verdict != "usable" && verdict != "buildable"))
      print_reasons(plugin.at("reasons"), 4, all);
  }
}

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

int list_command(const std::string& plugin_path, bool json, bool all) {
  const Runtime runtime(plugin_path);
  const Report report = read_report([&](char** out, char* error, uint32_t size) {
    return opdock_list_json(runtime.get(), 0, out, error, size);
  });
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

int explain_command(const std::string& plugin_path, const std::string& name, bool json) {
  const Runtime runtime(plugin_path);
  const Report report = read_report([&](char** out, char* error, uint32_t size) {
    return opdock_explain_json(runtime.get(), name.c_str(), out, error, size);
  });
  const int status = report.at("usable").get<bool>() ? kGood : kUnfit;
  if (json) {
    print_json(report);
    return status;
  }
  if (report.at("candidates").empty()) {
    const std::vector<std::string> known = report.at("known_ops").get<std::vector<std::string>>();
    const std::vector<std::string> near = report.at("near_ops").get<std::vector<std::string>>();
    const std::string guess =
        near.empty() ? "" : fmt::format("did you mean {}? ", join(near, " or "));
    complain(fmt::format("found no plugin or op named \"{}\"; {}{}", name, guess,
                         known.empty() ? "no plugin was found at all: see `opdock doctor`"
                                       : fmt::format("known ops: {}", join(known, ", "))));
    return status;
  }
  for (const auto& [device, path] : report.at("chosen").items()) {
    print(fmt::format("{} on {} comes from {}\n", printable(name), styled(device, Style::kBold),
                      printable(path.get<std::string>())));
  }
  print_chain(report.at("chain"));
  if (report.at("chosen").empty() && report.at("chain").empty()) {
    print(fmt::format("Nothing usable provides {}.\n", printable(name)));
  }
  print("\n");
  print_plugins(report.at("candidates"), true);
  return status;
}

int codes_command(bool json) {
  const Report report = read_report(opdock_codes_json);
  if (json) {
    print_json(report);
    return kGood;
  }
  std::string stage;
  for (const Report& code : report) {
    if (code.at("stage") != stage) {
      stage = text_of(code, "stage");
      print(styled(stage, Style::kBold) + "\n");
    }
    print("  " + styled(text_of(code, "code"), Style::kUnsure) + "\n");
    print(paragraph(text_of(code, "meaning") + " " + text_of(code, "cause"), 4));
    print(paragraph("-> " + text_of(code, "advice"), 4));
  }
  return kGood;
}

int doctor_command(const std::string& plugin_path, bool json) {
  const Runtime runtime(plugin_path);
  const Report report = read_report([&](char** out, char* error, uint32_t size) {
    return opdock_doctor_json(runtime.get(), out, error, size);
  });
  const int status = report.at("plugins").at("usable").get<size_t>() > 0 ? kGood : kUnfit;
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

}  // namespace opdock::cli
