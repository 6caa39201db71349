// SPDX-License-Identifier: Apache-2.0
#include "chain/chain_report.h"

#include <memory>
#include <utility>

#include "schema/dtype.h"

namespace opdock {
namespace {

// This is a pointer so that threads that never fail pay nothing, and the end of a thread frees it.
thread_local std::unique_ptr<Report> kept;

Report or_null(const std::string& text) {
  return text.empty() ? Report(nullptr) : Report(text);
}

}  // namespace

Report to_json(const StepReason& reason) {
  Report json;
  json["plugin"] = or_null(reason.plugin);
  json["path"] = or_null(reason.path);
  json.update(to_json(reason.reason));
  return json;
}

Report to_json(const ChainRecord& record) {
  Report json;
  json["device"] = to_text(record.device);
  json["dry"] = record.dry;
  json["serves"] = record.serves();
  json["steps"] = Report::array();
  for (const ChainStep& step : record.steps) {
    Report one;
    one["step"] = to_text(step.kind);
    one["outcome"] = to_text(step.outcome);
    one["text"] = step.text;
    one["reasons"] = Report::array();
    for (const StepReason& reason : step.reasons) one["reasons"].push_back(to_json(reason));
    one["changed"] = step.changed;
    json["steps"].push_back(std::move(one));
  }
  json["story"] = record.story();
  return json;
}

Report to_json(const Settings& settings) {
  Report json;
  for (const auto& [name, setting] :
       {std::pair{"build", &settings.build}, std::pair{"jit", &settings.jit},
        std::pair{"fallback", &settings.fallback}, std::pair{"cuda_archs", &settings.cuda_archs},
        std::pair{"hip_archs", &settings.hip_archs}}) {
    json[name] = {{"value", setting->value}, {"from", setting->place}};
  }
  return json;
}

Report flat_reasons(const ChainRecord& record) {
  Report list = Report::array();
  for (const ChainStep& step : record.steps) {
    for (const StepReason& reason : step.reasons) {
      Report one;
      one["step"] = to_text(step.kind);
      one.update(to_json(reason));
      list.push_back(std::move(one));
    }
  }
  return list;
}

std::string reference_report(const ChainRecord& record, const std::string& op, bool warn) {
  Report json = to_json(record);
  json["op"] = op;
  json["warn"] = warn;
  return json.dump(-1, ' ', false, Report::error_handler_t::replace);
}

void keep_reasons(Report reasons) {
  kept = std::make_unique<Report>(std::move(reasons));
}

Report take_reasons() {
  const std::unique_ptr<Report> taken = std::exchange(kept, nullptr);
  return taken == nullptr ? Report::array() : std::move(*taken);
}

}  // namespace opdock
