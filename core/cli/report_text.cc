// SPDX-License-Identifier: Apache-2.0
#include "report_text.h"

#include <algorithm>
#include <cstdio>

#include "base/texts.h"
#include "fmt/format.h"

namespace opdock::cli {
namespace {

std::string archs_text(const Report& plugin) {
  std::vector<std::string> archs = plugin.at("cuda_archs").get<std::vector<std::string>>();
  for (const Report& arch : plugin.at("hip_archs")) archs.push_back(arch.get<std::string>());
  return printable(join(archs, " "));
}

bool has_reason(const Report& reasons, const char* code) {
  return std::any_of(reasons.begin(), reasons.end(),
                     [&](const Report& reason) { return reason.at("code") == code; });
}

const std::vector<Cell> kPluginHead = {{"PLUGIN", Style::kDim},
                                       {"VERSION", Style::kDim},
                                       {"VERDICT", Style::kDim},
                                       {"DEVICES", Style::kDim}};

bool is_fit(const std::string& verdict) {
  return verdict == "usable" || verdict == "buildable";
}

// Returns why the plugin is not usable: "abi-major, note-json".
std::string codes_text(const Report& plugin) {
  std::vector<std::string> codes;
  for (const Report& reason : plugin.at("reasons")) {
    const std::string code = text_of(reason, "code");
    if (reason.at("severity") == "notice") continue;
    if (std::find(codes.begin(), codes.end(), code) == codes.end()) codes.push_back(code);
  }
  return codes.empty() ? "-" : join(codes, ", ");
}

std::vector<Cell> plugin_row(const Report& plugin) {
  const std::string verdict = text_of(plugin, "verdict");
  return {{name_of(plugin), Style::kBold},
          {text_of(plugin, "version", "-")},
          {verdict, verdict_style(verdict)},
          {devices_text(plugin)}};
}

}  // namespace

std::string quoted(const std::string& text) {
  return fmt::format("\"{}\"", text);
}

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
}

void print_json(const Report& report) {
  print(report.dump(2, ' ', false, Report::error_handler_t::replace) + "\n");
}

std::string text_of(const Report& object, const char* key, const char* missing) {
  const Report& value = object.at(key);
  return value.is_string() ? printable(value.get<std::string>()) : missing;
}

Style verdict_style(const std::string& verdict) {
  return verdict == "usable" || verdict == "buildable" ? Style::kGood
         : verdict == "rejected"                       ? Style::kBad
                                                       : Style::kUnsure;
}

// Returns what serves each device, or why nothing does: "cpu, cuda:0 (sm_90), rocm: no-driver".
std::string devices_text(const Report& plugin) {
  std::vector<std::string> parts;
  for (const Report& device : plugin.at("devices")) {
    std::string part = text_of(device, "device");
    if (is_fit(text_of(device, "verdict"))) {
      if (device.at("image").is_string()) {
        part += " (" + text_of(device, "image") + ")";
      } else if (has_reason(device.at("reasons"), "compiled-later")) {
        part += " (compiled when first used)";
      }
    } else {
      const Report& reasons = device.at("reasons");
      part += ": " + (reasons.empty() ? text_of(device, "verdict") : text_of(reasons[0], "code"));
    }
    parts.push_back(part);
  }
  return parts.empty() ? "-" : join(parts, ", ");
}

std::string name_of(const Report& plugin) {
  if (plugin.at("name").is_string()) return text_of(plugin, "name");
  const std::string path = text_of(plugin, "path");
  return path.substr(path.rfind('/') + 1);
}

void print_reason(const Report& reason, size_t indent) {
  const std::string code = text_of(reason, "code");
  const std::string text = reason.at("text").get<std::string>();
  const bool has_lines = text.find('\n') != text.npos;  // a compiler's text has several lines
  std::string block = has_lines ? paragraph(code + ":", indent) + lines(text, indent + 2)
                                : paragraph(code + ": " + printable(text), indent);
  const Style style = reason.at("severity") == "reject"      ? Style::kBad
                      : reason.at("severity") == "undecided" ? Style::kUnsure
                                                             : Style::kDim;
  block.replace(indent, code.size(), styled(code, style));
  print(block);
  const std::string advice = text_of(reason, "advice");
  if (!advice.empty() && advice != "nothing to do") {
    print(paragraph("-> " + advice, indent + 2));
  }
}

void print_reasons(const Report& reasons, size_t indent, bool all) {
  for (const Report& reason : reasons) {
    if (all || reason.at("severity") != "notice") print_reason(reason, indent);
  }
}

void print_plugin_lines(const Report& plugins) {
  std::vector<std::vector<Cell>> rows = {kPluginHead};
  for (const Report& plugin : plugins) {
    rows.push_back(plugin_row(plugin));
    if (!is_fit(text_of(plugin, "verdict"))) rows.back().back() = {codes_text(plugin)};
  }
  print(table(rows));
}

// Prints the rows aligned, and under each one its path, architectures and reasons.
void print_plugins(const Report& plugins, bool all) {
  std::vector<std::vector<Cell>> rows = {kPluginHead};
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
    if (all || !is_fit(verdict)) print_reasons(plugin.at("reasons"), 4, all);
  }
}

}  // namespace opdock::cli
