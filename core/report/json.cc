// SPDX-License-Identifier: Apache-2.0
#include "report/json.h"

#include "base/sentence.h"

namespace opdock {

Report to_json(const Reason& reason) {
  const CodeInfo& code = info(reason.code);
  const char* const severity = code.severity == Severity::kReject      ? "reject"
                               : code.severity == Severity::kUndecided ? "undecided"
                                                                       : "notice";
  return {{"code", code.name},        {"stage", code.stage},   {"severity", severity},
          {"text", sentence(reason)}, {"found", reason.found}, {"wanted", reason.wanted},
          {"advice", reason.advice}};
}

Report to_json(const std::vector<Reason>& reasons) {
  Report list = Report::array();
  for (const Reason& reason : reasons) list.push_back(to_json(reason));
  return list;
}

}  // namespace opdock
