// SPDX-License-Identifier: Apache-2.0
#include "base/sentence.h"

#include <algorithm>

namespace opdock {
namespace {

std::string replaced(std::string text, std::string_view mark, std::string_view value) {
  if (const size_t at = text.find(mark); at != text.npos) text.replace(at, mark.size(), value);
  return text;
}

// Adds a capital letter and a full stop.
std::string as_sentence(std::string text) {
  if (text.empty()) return text;
  if (text.front() >= 'a' && text.front() <= 'z') text.front() += 'A' - 'a';
  if (std::string_view(".!?:").find(text.back()) == std::string_view::npos) text += '.';
  return text;
}

}  // namespace

std::string sentence(const Reason& reason) {
  std::string form(info(reason.code).sentence);
  if (form.empty()) {
    const bool has_lines = reason.found.find('\n') != reason.found.npos;
    form = has_lines ? "{found}" : "found {found}";
    if (!reason.wanted.empty()) form += has_lines ? "\nwanted {wanted}" : ", wanted {wanted}";
  }
  // {wanted} is replaced first, because `found` may hold any text, even "{wanted}".
  return replaced(replaced(std::move(form), "{wanted}", reason.wanted), "{found}", reason.found);
}

std::string to_text(const Reason& reason) {
  const std::string text = sentence(reason), advice = as_sentence(reason.advice);
  const std::string head = std::string(info(reason.code).name) + ": ";
  if (text.find('\n') != text.npos) return head + text + (advice.empty() ? "" : "\n" + advice);
  const bool is_ended = text.ends_with('.') || text.ends_with('!') || text.ends_with('?');
  return head + text + (is_ended ? "" : ".") + (advice.empty() ? "" : " " + advice);
}

std::string to_line(const Reason& reason) {
  const size_t end = std::min(reason.found.find('\n'), reason.found.size());
  std::string text = std::string(info(reason.code).name) + ": found " +
                     reason.found.substr(0, end) + ", wanted " + reason.wanted;
  if (!reason.advice.empty()) text += "; " + reason.advice;
  return text + reason.found.substr(end);
}

std::optional<Reason> parse_line(std::string_view line) {
  constexpr std::string_view kFound = ": found ", kWanted = ", wanted ", kAdvice = "; ";
  const size_t found = line.find(kFound), wanted = line.find(kWanted);
  if (found == line.npos || wanted == line.npos || wanted < found) return std::nullopt;
  const size_t advice = std::min(line.find(kAdvice, wanted), line.size());
  for (const CodeInfo& code : all_codes()) {
    if (code.name != line.substr(0, found)) continue;
    const size_t begin = found + kFound.size(), middle = wanted + kWanted.size();
    Reason reason = make_reason(code.code, std::string(line.substr(begin, wanted - begin)),
                                std::string(line.substr(middle, advice - middle)));
    if (advice < line.size()) reason.advice = line.substr(advice + kAdvice.size());
    return reason;
  }
  return std::nullopt;
}

}  // namespace opdock
