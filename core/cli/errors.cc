// SPDX-License-Identifier: Apache-2.0
#include "errors.h"

#include "report_text.h"

namespace opdock::cli {
namespace {

int report(const std::string& text, int status, const Report& reasons, bool json) {
  print_error(text);
  if (json) print_json({{"error", text}, {"status", status}, {"reasons", reasons}});
  std::fflush(stdout);
  return status;
}

Report reason(const char* code, const std::string& found, const std::string& wanted,
              const std::string& advice) {
  const std::string text = wanted.empty() ? found : "found " + found + ", wanted " + wanted;
  return {{"code", code},   {"stage", "command"}, {"severity", "reject"}, {"text", text},
          {"found", found}, {"wanted", wanted},   {"advice", advice}};
}

}  // namespace

int report_error(const Usage& usage, bool json) {
  const std::string help =
      "see `opdock " + (usage.command.empty() ? "" : usage.command + " ") + "--help`";
  const std::string between = usage.advice.empty() ? "" : usage.advice.ends_with('?') ? " " : "; ";
  const std::string advice = usage.advice + between + help;
  const std::string found = (usage.where.empty() ? "" : usage.where + ": ") + usage.found;
  std::string text = usage.command.empty() ? "" : usage.command + ": ";
  if (!usage.where.empty()) text += usage.where + ": ";
  text += "found " + usage.found;
  if (!usage.wanted.empty()) text += ", wanted " + usage.wanted;
  return report(text + "; " + advice, kBadUsage,
                Report::array({reason("usage", found, usage.wanted, advice)}), json);
}

int report_error(const Failure& failure, bool json) {
  const bool is_usage = failure.status == OPDOCK_INVALID_ARGUMENT;
  Report reasons = read_report(opdock_take_reasons_json);
  if (reasons.empty()) {
    reasons.push_back(reason(is_usage ? "usage" : "request-failed", failure.text, "", ""));
  }
  const bool is_stopped = failure.status == OPDOCK_CANCELLED;
  return report(failure.text,
                is_usage     ? kBadUsage
                : is_stopped ? kInterrupted
                             : kExitUnusable,
                reasons, json);
}

int report_error(const std::string& text, bool json) {
  return report(text, kExitUnusable, Report::array({reason("request-failed", text, "", "")}), json);
}

}  // namespace opdock::cli
