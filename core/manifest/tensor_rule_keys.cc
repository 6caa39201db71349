// SPDX-License-Identifier: Apache-2.0
#include "manifest/tensor_rule_keys.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "opdock/plugin.h"
#include "schema/op_flags.h"
#include "schema/tensor_rule.h"

namespace opdock {
namespace {

struct PlacedRule {
  std::string text;
  const char* key;
  TextPlace place;
};

// Returns the rules in the order in which calls check them: first the rows with which other tensors
// are compared, so that an error names what a caller would change.
std::vector<PlacedRule> rules_of(TomlTable* table) {
  const std::vector<std::string> rows = table->texts("rows", false);
  const std::vector<std::string> contiguous = table->texts("contiguous", false);
  const std::vector<std::pair<std::string, std::string>> like = table->text_pairs("like");
  const auto is_compared = [&](const std::string& name) {
    return std::any_of(like.begin(), like.end(),
                       [&](const auto& one) { return one.first == name; });
  };
  std::vector<PlacedRule> rules;
  const auto add = [&](const char* key, const std::string& word, std::string text) {
    rules.push_back({std::move(text), key, table->place(key, word)});
  };
  const auto add_layouts = [&](bool of_compared) {
    for (const std::string& name : rows)
      if (is_compared(name) == of_compared) add("rows", name, "rows " + name);
    for (const std::string& name : contiguous)
      if (is_compared(name) == of_compared) add("contiguous", name, "contiguous " + name);
  };
  add_layouts(false);
  for (const auto& [name, other] : like)
    rules.push_back({"like " + name + " " + other, "like", table->place_in("like", name)});
  add_layouts(true);
  for (const char* key : {"broadcast", "in-place"})
    for (const std::string& name : table->texts(key, false))
      add(key, name, std::string(key) + " " + name);
  for (const char* key : {"rows", "contiguous", "broadcast", "in-place"})
    table->check_once(key, table->texts(key, false));
  return rules;
}

}  // namespace

void read_tensor_rules(
    TomlTable* table, const Schema& schema, OpDecl* op,
    const std::function<void(TextPlace, const std::string&, std::string)>& report) {
  for (PlacedRule& rule : rules_of(table)) {
    op->tensor_rules.push_back(std::move(rule.text));
    Reason reason{};
    size_t at = 0;
    if (!parse_tensor_rules(op->tensor_rules, schema, &reason, &at)) {
      report(rule.place, "\"" + std::string(rule.key) + "\": " + reason.found, reason.wanted);
      op->tensor_rules.pop_back();
      continue;
    }
    // The other rules say that the op takes less than its formula.
    if (!op->formula.empty() && std::string_view(rule.key) == "in-place")
      report(rule.place, "\"in-place\" beside \"formula\"",
             "one of the two: the host finds out by itself what a formula may write over");
    if (std::string_view(rule.key) != "in-place" || (op->flag_bits & OPDOCK_OP_IN_PLACE) != 0)
      continue;
    op->flags.push_back("in-place");
    op->flag_bits |= OPDOCK_OP_IN_PLACE;
  }
}

}  // namespace opdock
