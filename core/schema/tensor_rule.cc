// SPDX-License-Identifier: Apache-2.0
#include "schema/tensor_rule.h"

#include <string_view>

#include "schema/scanner.h"

namespace opdock {
namespace {

struct Keyword {
  std::string_view word;
  TensorRule::Kind kind;
};
constexpr Keyword kKeywords[] = {{"rows", TensorRule::Kind::kRows},
                                 {"contiguous", TensorRule::Kind::kContiguous},
                                 {"like", TensorRule::Kind::kLike},
                                 {"broadcast", TensorRule::Kind::kBroadcast},
                                 {"in-place", TensorRule::Kind::kInPlace}};

class RuleParser {
 public:
  // rows: the parameter of the first rule "rows …" so far, or -1.
  RuleParser(std::string_view text, const Schema& schema, int rows)
      : in_(text), schema_(schema), rows_(rows) {}

  bool parse(TensorRule* rule) {
    if (!take_kind(&rule->kind)) return false;
    const int param = tensor(true);
    int other = rows_;
    if (rule->kind == TensorRule::Kind::kLike) other = tensor(false);
    if (rule->kind == TensorRule::Kind::kBroadcast && rows_ < 0)
      in_.fail("a rule \"rows …\" before this one, which says whose columns count");
    if (!in_.failed() && !in_.at_end()) in_.fail("the end of the rule");
    if (in_.failed()) return false;
    rule->param = static_cast<uint8_t>(param);
    rule->other = static_cast<uint8_t>(other < 0 ? param : other);
    return true;
  }
  Reason reason() const { return make_reason(Code::kSchemaInvalid, in_.found(), in_.wanted()); }

 private:
  bool take_kind(TensorRule::Kind* kind) {
    for (const Keyword& one : kKeywords) {
      if (!in_.take(one.word)) continue;
      *kind = one.kind;
      return true;
    }
    return in_.fail("\"rows\", \"contiguous\", \"like\", \"broadcast\" or \"in-place\"");
  }

  // Takes the name of a tensor parameter that is no list.
  int tensor(bool may_be_none) {
    in_.peek();
    const size_t start = in_.position();
    const int param = schema_.find(in_.word());
    if (in_.failed()) return -1;
    if (param >= 0) {
      const SchemaType& type = schema_.params[static_cast<size_t>(param)].type;
      if (type.tag == OPDOCK_TAG_TENSOR && !type.list && (may_be_none || !type.optional))
        return param;
    }
    in_.fail(std::string("a parameter of type Tensor ") + (may_be_none ? "or Tensor? of " : "of ") +
                 schema_.text(),
             start);
    return -1;
  }

  Scanner in_;
  const Schema& schema_;
  const int rows_;
};

}  // namespace

std::optional<std::vector<TensorRule>> parse_tensor_rules(std::span<const std::string> texts,
                                                          const Schema& schema, Reason* error,
                                                          size_t* at) {
  std::vector<TensorRule> rules;
  int rows = -1;
  for (size_t i = 0; i < texts.size(); ++i) {
    RuleParser parser(texts[i], schema, rows);
    TensorRule rule{};
    if (!parser.parse(&rule)) {
      if (error != nullptr) *error = parser.reason();
      if (at != nullptr) *at = i;
      return std::nullopt;
    }
    const bool is_there = !schema.params[rule.param].type.optional;
    if (rule.kind == TensorRule::Kind::kRows && rows < 0 && is_there) rows = rule.param;
    rules.push_back(rule);
  }
  return rules;
}

}  // namespace opdock
