// SPDX-License-Identifier: Apache-2.0
#include "arch/list_scanner.h"

#include <fmt/format.h>

namespace opdock {

// Quotes a variable's text, which may be anything. Characters that a terminal would act on are
// escaped.
static std::string quoted(std::string_view text) {
  constexpr size_t kLongest = 120;
  std::string out = "\"";
  for (const char c : text.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte < 0x20 || byte == 0x7f ? fmt::format("\\x{:02x}", byte) : std::string(1, c);
  }
  return out + (text.size() > kLongest ? "…\"" : "\"");
}

Reason ListScanner::invalid(std::string_view word, std::string wanted, std::string advice) const {
  Reason reason = make_reason(Code::kArchListInvalid,
                              fmt::format("{} at character {} of {} = {}", quoted(word), begin_ + 1,
                                          origin_, quoted(text_)),
                              std::move(wanted));
  if (!advice.empty()) reason.advice = std::move(advice);
  return reason;
}

Reason ListScanner::empty(std::string wanted) const {
  return make_reason(Code::kArchListInvalid,
                     fmt::format("no architecture in {} = {}", origin_, quoted(text_)),
                     std::move(wanted));
}

}  // namespace opdock
