// opdock explain: says which plugin serves an op, and what the reason codes mean.
// SPDX-License-Identifier: Apache-2.0
#include "base/texts.h"
#include "commands.h"
#include "fmt/format.h"
#include "report_text.h"

namespace opdock::cli {
namespace {

// A longer list is not printed, because it is more than a reader looks through.
constexpr size_t kMaxOpsNamed = 10;

// Prints "cpu: binary plugin: …": the steps of each device, each with its reasons.
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

void print_code(const Report& code, size_t indent) {
  print(paragraph(text_of(code, "meaning") + " " + text_of(code, "cause"), indent));
  print(paragraph("-> " + text_of(code, "advice"), indent));
}

}  // namespace

int explain_command(const std::string& plugin_path, const GpuMachine& machine,
                    const std::string& name, bool json) {
  if (explain_code(name, json)) return kGood;
  const Runtime runtime(plugin_path);
  describe(runtime, machine);
  Report report = read_report([&](char** out, char* error, uint32_t size) {
    return opdock_explain_json(runtime.get(), name.c_str(), out, error, size);
  });
  name_gpus(machine, &report);
  const int status = report.at("usable").get<bool>() ? kGood : kExitUnusable;
  if (json) {
    print_json(report);
    return status;
  }
  if (report.at("candidates").empty()) {
    const std::vector<std::string> known = report.at("known_ops").get<std::vector<std::string>>();
    const std::vector<std::string> similar = report.at("near_ops").get<std::vector<std::string>>();
    print_error(fmt::format("found no plugin or op named \"{}\"; {}", name,
                            known.empty()      ? "no plugin was found at all: see `opdock doctor`"
                            : !similar.empty() ? fmt::format("did you mean {}?", join_or(similar))
                            : known.size() > kMaxOpsNamed
                                ? "`opdock list` shows the plugins, `opdock list --details "
                                  "NAME` what one has"
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

bool explain_code(const std::string& name, bool json) {
  for (const Report& code : read_report(opdock_codes_json)) {
    if (code.at("code") != name) continue;
    if (json) {
      print_json(code);
    } else {
      print(fmt::format("{}  (stage {})\n", styled(name, Style::kBold), text_of(code, "stage")));
      print_code(code, 2);
    }
    return true;
  }
  return false;
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
    print_code(code, 4);
  }
  return kGood;
}

}  // namespace opdock::cli
