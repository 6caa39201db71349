// SPDX-License-Identifier: Apache-2.0
#include "schema/gradient.h"

#include <algorithm>

#include "opdock/opdock.h"
#include "schema/defaults.h"
#include "schema/scanner.h"

namespace opdock {
namespace {

bool same_kind(const SchemaType& found, const SchemaType& wanted) {
  return found.tag == wanted.tag && found.list == wanted.list && found.object == wanted.object &&
         (!found.optional || wanted.optional) &&
         (!found.optional_element || wanted.optional_element);
}

class GradientParser {
 public:
  GradientParser(std::string_view text, const Schema& schema, std::span<const Schema> ops)
      : in_(text), schema_(schema), ops_(ops) {}

  std::optional<Gradient> parse() {
    parse_params();
    if (in_.take("none")) {
      in_.expect(":");
      gradient_.why = in_.rest();
      if (gradient_.why.empty()) in_.fail("the reason why there is no gradient");
    } else {
      parse_call();
      if (!in_.failed() && !in_.at_end()) in_.fail("the end of the gradient");
    }
    if (in_.failed()) return std::nullopt;
    return std::move(gradient_);
  }
  Reason reason() const { return make_reason(Code::kSchemaInvalid, in_.found(), in_.wanted()); }

 private:
  // Parses "x, weight", and "x & residual", two parameters that share one gradient.
  void parse_params() {
    bool more = true;
    while (more) {
      in_.peek();
      const size_t start = in_.position();
      const int index = schema_.find(in_.word());
      if (index < 0 || type_of(index).tag != OPDOCK_TAG_TENSOR) {
        in_.fail("a tensor parameter of " + schema_.text(), start);
        return;
      }
      gradient_.params.push_back(static_cast<uint32_t>(index));
      gradient_.results.push_back(results_);
      more = in_.take("&");
      if (more) continue;
      ++results_;
      more = in_.take(",");
    }
    in_.expect("=");
  }

  void parse_call() {
    in_.peek();
    const size_t start = in_.position();
    const std::string_view name = in_.word();
    const auto found =
        std::find_if(ops_.begin(), ops_.end(), [&](const Schema& op) { return op.name == name; });
    if (found == ops_.end()) {
      in_.fail("an op of the same plugin, or \"none: \" and a reason", start);
      return;
    }
    op_ = &*found;
    gradient_.op = op_->name;
    given_.assign(op_->params.size(), false);
    gradient_.args.resize(op_->params.size());
    in_.expect("(");
    if (!in_.take(")")) {
      size_t position = 0;
      do {
        parse_arg(&position);
      } while (!in_.failed() && in_.take(","));
      in_.expect(")");
    }
    if (in_.failed()) return;
    fill_defaults(start);
    check_results(start);
  }

  // Parses "value" or "name=value".
  void parse_arg(size_t* position) {
    in_.peek();
    const size_t start = in_.position();
    const std::string_view name = in_.word();
    size_t at = *position;
    const int named = name.empty() ? -1 : op_->find(name);
    if (!name.empty() && in_.peek() == '=') {
      in_.expect("=");
      if (named < 0) in_.fail("a parameter of " + op_->text(), start);
      at = static_cast<size_t>(std::max(named, 0));
    } else {
      in_.rewind(start);
      ++*position;
      if (at >= op_->params.size() || op_->params[at].keyword_only) {
        in_.fail("')' or an argument by name, as " + op_->text() + " takes it", start);
      }
    }
    if (in_.failed()) return;
    if (given_[at]) in_.fail("each parameter of " + op_->name + " once", start);
    given_[at] = true;
    gradient_.args[at] = parse_value(op_->params[at]);
  }

  GradientArg parse_value(const SchemaParam& wanted) {
    GradientArg arg;
    in_.peek();
    const size_t start = in_.position();
    if (in_.take("grads")) return parse_indexed(OPDOCK_GRADIENT_INCOMING, wanted, start);
    if (in_.take("results")) return parse_indexed(OPDOCK_GRADIENT_RESULT, wanted, start);
    const int param = schema_.find(in_.word());
    if (param >= 0) {
      arg.kind = OPDOCK_GRADIENT_PARAM;
      arg.index = static_cast<uint32_t>(param);
      check_type(type_of(param), wanted, start);
      return arg;
    }
    in_.rewind(start);
    arg.kind = OPDOCK_GRADIENT_CONSTANT;
    arg.constant = parse_default(&in_, wanted.type);
    return arg;
  }
  // Parses what follows the first word of grads[0] or results[1].
  GradientArg parse_indexed(uint32_t kind, const SchemaParam& wanted, size_t start) {
    GradientArg arg;
    arg.kind = kind;
    in_.expect("[");
    in_.peek();
    const size_t number = in_.position();
    const std::string_view digits = in_.number();
    arg.index = 0;
    for (const char c : digits) {
      if (c < '0' || c > '9' || arg.index > kMaxReturns) in_.fail("a result's number", number);
      arg.index = arg.index * 10 + static_cast<uint32_t>(c - '0');
    }
    in_.expect("]");
    if (digits.empty() || arg.index >= schema_.returns.size()) {
      in_.fail("the number of one of the " + std::to_string(schema_.returns.size()) +
                   " results of " + schema_.text(),
               number);
    }
    if (in_.failed()) return arg;
    SchemaType type = schema_.returns[arg.index].type;
    if (kind == OPDOCK_GRADIENT_INCOMING) {
      if (type.tag != OPDOCK_TAG_TENSOR)
        in_.fail("the gradient of a result that is a tensor", start);
      type.optional = false;  // zeros stand for a missing gradient
    }
    check_type(type, wanted, start);
    return arg;
  }

  void check_type(const SchemaType& found, const SchemaParam& wanted, size_t start) {
    if (in_.failed() || same_kind(found, wanted.type)) return;
    in_.fail("a value of type " + to_text(wanted.type) + " for parameter '" + wanted.name +
                 "' of " + op_->name,
             start);
  }

  void fill_defaults(size_t start) {
    for (size_t i = 0; i < op_->params.size(); ++i) {
      if (given_[i]) continue;
      const SchemaParam& param = op_->params[i];
      if (!param.fallback) {
        in_.fail("an argument for parameter '" + param.name + "' of " + op_->text(), start);
        return;
      }
      gradient_.args[i].kind = OPDOCK_GRADIENT_CONSTANT;
      gradient_.args[i].constant = *param.fallback;
    }
  }

  // Checks that each result of the op is the gradient of its parameters.
  void check_results(size_t start) {
    bool fits = op_->returns.size() == results_;
    for (size_t i = 0; fits && i < gradient_.params.size(); ++i) {
      const SchemaReturn& result = op_->returns[gradient_.results[i]];
      fits = result.is_fresh_tensor() &&
             result.type.list == type_of(static_cast<int>(gradient_.params[i])).list;
    }
    if (!fits) {
      in_.fail("an op whose results are the " + std::to_string(results_) +
                   " gradients of the parameters, in their order",
               start);
    }
  }

  const SchemaType& type_of(int param) const {
    return schema_.params[static_cast<size_t>(param)].type;
  }

  Scanner in_;
  const Schema& schema_;
  std::span<const Schema> ops_;
  const Schema* op_ = nullptr;
  std::vector<bool> given_;
  uint32_t results_ = 0;  // number of results that the parameters take
  Gradient gradient_;
};

}  // namespace

std::optional<std::vector<Gradient>> parse_gradients(std::span<const std::string> texts,
                                                     const Schema& schema,
                                                     std::span<const Schema> ops, Reason* error,
                                                     size_t* at) {
  std::vector<Gradient> gradients;
  std::vector<int> declared(schema.params.size(), 0);
  for (size_t i = 0; i < texts.size(); ++i) {
    if (at != nullptr) *at = i;
    GradientParser parser(texts[i], schema, ops);
    std::optional<Gradient> gradient = parser.parse();
    if (!gradient) {
      *error = parser.reason();
      return std::nullopt;
    }
    for (const uint32_t param : gradient->params) {
      if (++declared[param] == 1) continue;
      *error = make_reason(Code::kSchemaInvalid,
                           "a second gradient of '" + schema.params[param].name + "'",
                           "each parameter once");
      return std::nullopt;
    }
    gradients.push_back(*std::move(gradient));
  }
  for (size_t i = 0; !texts.empty() && i < declared.size(); ++i) {
    if (declared[i] != 0 || schema.params[i].type.tag != OPDOCK_TAG_TENSOR) continue;
    *error = make_reason(Code::kSchemaInvalid, "no gradient of '" + schema.params[i].name + "'",
                         "one, or \"none: \" and the reason why it has none");
    return std::nullopt;
  }
  return gradients;
}

}  // namespace opdock
