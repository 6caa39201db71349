// Fuzzes formulas. A refused text has a reason with a place in the text; an accepted one is printed
// as the same formula.
// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <optional>

#include "formula/formula.h"

namespace {

using namespace opdock::formula;

void check(const SyntaxError& error) {
  const std::string_view what = error.what();
  if (error.line < 1 || error.column < 1) abort();
  if (!what.starts_with("line " + std::to_string(error.line) + ", column ")) abort();
  // Nothing that a terminal would obey, and no text of the length of the input.
  if (what.size() > 2000) abort();
  for (const char c : what)
    if (static_cast<unsigned char>(c) < ' ' && c != '\n' && c != '\t') abort();
}

// Returns the key of the formula's graph over tensors of float32, or nullopt if types do not fit.
std::optional<std::string> key(const Formula& formula) {
  try {
    return formula.graph(std::vector<Argument>(formula.parameters().size())).key();
  } catch (const SyntaxError& error) {
    check(error);
    return std::nullopt;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::optional<Formula> formula;
  try {
    formula.emplace(std::string_view(reinterpret_cast<const char*>(data), size));
  } catch (const SyntaxError& error) {
    check(error);
    return 0;
  }
  if (formula->num_results() == 0 || formula->num_results() > kMaxResults) abort();
  const std::string text = formula->text();
  if (text.size() > kMaxText) return 0;  // spaces may lengthen it
  const Formula again(text);             // must not throw
  if (again.text() != text || key(again) != key(*formula)) abort();
  return 0;
}
