// SPDX-License-Identifier: Apache-2.0
#include "base/reason.h"

#include <algorithm>

#include "base/mutex.h"

namespace opdock {

const std::vector<CodeInfo>& all_codes() {
  const NoFork no_fork;
  static const std::vector<CodeInfo> codes = {
#define OPDOCK_CODE(id, name, stage, severity, ...) \
  {Code::k##id, name, stage, Severity::severity, __VA_ARGS__},
#include "base/reason_codes.def"
#undef OPDOCK_CODE
  };
  return codes;
}

const CodeInfo& info(Code code) {
  return all_codes()[static_cast<size_t>(code)];
}

Reason make_reason(Code code, std::string found, std::string wanted) {
  return {code, without_nul(std::move(found)), without_nul(std::move(wanted)),
          std::string(info(code).advice)};
}

Reason make_reason(Code code) {
  const CodeInfo& texts = info(code);
  return make_reason(code, std::string(texts.found), std::string(texts.wanted));
}

bool has_code(std::span<const Reason> reasons, Code code) {
  return std::any_of(reasons.begin(), reasons.end(),
                     [&](const Reason& reason) { return reason.code == code; });
}

std::string without_nul(std::string text) {
  for (size_t at = 0; (at = text.find('\0', at)) != text.npos;) text.replace(at, 1, "\uFFFD");
  return text;
}

}  // namespace opdock
