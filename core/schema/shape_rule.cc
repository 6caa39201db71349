// Parses shape rules.
// SPDX-License-Identifier: Apache-2.0
#include "schema/shape_rule.h"

#include <charconv>
#include <limits>

#include "schema/dtype.h"
#include "schema/scanner.h"
#include "schema/shape_rule_parts.h"

namespace opdock {
namespace {

// An argument that is a tensor: a parameter or, if it is a list, one of its elements.
struct TensorRef {
  int32_t param = -1;
  int32_t element = -1;  // the node that gives the element's number; -1: none
};

class ShapeRuleParser {
 public:
  ShapeRuleParser(std::string_view text, const Schema& schema, const SchemaReturn& result)
      : in_(text), schema_(schema), result_(result) {
    parts_->text = text;
  }

  std::optional<ShapeRule> parse() {
    opdock_shape_rule& rule = parts_->view;
    rule.condition = -1;
    rule.count = -1;
    find_loop();
    parse_shape(&rule.then, &parts_->then);
    if (in_.take("if")) {
      rule.condition = parse_condition();
      parse_otherwise(&rule);
    } else if (result_.type.optional) {
      in_.fail("\"if\" and when there is such a tensor, as the result is a Tensor?");
    }
    if (result_.type.list) parse_count(&rule);
    if (!in_.failed() && !in_.at_end()) in_.fail("an operator, \"if\" or the end of the rule");
    if (in_.failed()) return std::nullopt;
    finish(&rule.then, parts_->then);
    finish(&rule.otherwise, parts_->otherwise);
    rule.text = parts_->text.c_str();
    rule.num_exprs = static_cast<uint32_t>(parts_->exprs.size());
    rule.exprs = parts_->exprs.data();
    return ShapeRule(std::move(parts_));
  }

  Reason reason() const { return make_reason(Code::kSchemaInvalid, in_.found(), in_.wanted()); }

 private:
  static void finish(opdock_shape* shape, const std::vector<opdock_dim>& dims) {
    shape->num_dims = static_cast<uint32_t>(dims.size());
    shape->dims = dims.data();
  }

  int32_t add(opdock_expr expr) {
    if (parts_->exprs.size() >= 512) in_.fail("a shorter rule");
    parts_->exprs.push_back(expr);
    return static_cast<int32_t>(parts_->exprs.size() - 1);
  }
  int32_t add(uint32_t kind, int32_t a, int32_t b = -1, int32_t c = -1) {
    return add({kind, -1, 0, a, b, c, -1});
  }

  const SchemaType& type_of(int32_t param) const {
    return schema_.params[static_cast<size_t>(param)].type;
  }
  bool is_tensor(int32_t param) const { return type_of(param).tag == OPDOCK_TAG_TENSOR; }

  // Finds the name i of "… for i in range(…)", which comes after the parts that use it.
  void find_loop() {
    if (!result_.type.list) return;
    const std::string_view text = parts_->text;
    const size_t at = text.rfind(" for ");
    if (at == text.npos) return;
    Scanner behind(text.substr(at + 5));
    loop_ = behind.word();
  }

  void parse_otherwise(opdock_shape_rule* rule) {
    if (!in_.take("else")) {
      if (!result_.type.optional) in_.fail("\"else\" and another shape");
      rule->otherwise_none = 1;
    } else if (in_.take("None")) {
      if (!result_.type.optional) in_.fail("a shape, as the result is no Tensor?");
      rule->otherwise_none = 1;
    } else {
      parse_shape(&rule->otherwise, &parts_->otherwise);
      if (result_.type.optional) in_.fail("None, as the result is a Tensor?");
    }
  }

  void parse_count(opdock_shape_rule* rule) {
    if (!in_.take("for")) in_.fail("\"for i in range(…)\", as the result is a Tensor[]");
    in_.peek();
    const size_t start = in_.position();
    const std::string_view name = in_.word();
    if (name.empty() || schema_.find(name) >= 0) in_.fail("a name that no parameter has", start);
    in_.expect("in");
    in_.expect("range");
    in_.expect("(");
    loop_ = {};
    rule->count = parse_sum(0);
    in_.expect(")");
  }

  void parse_shape(opdock_shape* shape, std::vector<opdock_dim>* dims) {
    shape->dtype_param = shape->dtype_element = -1;
    if (in_.take("like")) {
      const TensorRef like = parse_tensor();
      dims->push_back({-1, like.param, like.element, 0, 0, kEnd});
      shape->dtype_param = like.param;
      shape->dtype_element = like.element;
    } else if (in_.take("[")) {
      parse_list(dims);
    } else {
      in_.fail("\"like\" and a tensor parameter, or '[' and dimensions");
    }
    if (in_.take(",")) parse_dtype(shape);
  }

  // Parses x or xs[i].
  TensorRef parse_tensor(int depth = 1) {
    in_.peek();
    const size_t start = in_.position();
    const int32_t index = schema_.find(in_.word());
    if (index < 0 || !is_tensor(index)) in_.fail("a tensor parameter", start);
    return in_.failed() ? TensorRef{} : TensorRef{index, parse_element(index, depth)};
  }
  // Parses "[i]" after a list; returns -1 after anything else.
  int32_t parse_element(int32_t param, int depth) {
    if (!type_of(param).list) return -1;
    in_.expect("[");
    const int32_t element = parse_sum(depth);
    in_.expect("]");
    return element;
  }

  void parse_list(std::vector<opdock_dim>* dims) {
    if (in_.take("]")) return;
    while (!in_.failed()) {
      dims->push_back(parse_item());
      if (in_.take("]")) return;
      if (!in_.take(",")) in_.fail("an operator, ',' or ']'");
    }
  }

  // Parses a run's "[from:to]", or nothing; returns false at anything else.
  bool parse_slice(opdock_dim* dim) {
    if (!in_.take("[")) return true;
    if (in_.peek() != ':') dim->from = integer();
    if (!in_.take(":")) return false;
    if (in_.peek() != ']') dim->to = integer();
    in_.expect("]");
    return true;
  }

  // Parses x.shape, x.shape[1:], x.shape[:-1], broadcast(x, y), broadcast(x, y)[:-1], or an
  // expression.
  opdock_dim parse_item() {
    in_.peek();
    const size_t start = in_.position();
    const size_t nodes = parts_->exprs.size();
    const std::string_view name = in_.word();
    const int32_t index = schema_.find(name);
    if (index >= 0 && is_tensor(index)) {
      opdock_dim dim{-1, index, parse_element(index, 1), 0, 0, kEnd};
      if (in_.take(".") && in_.take("shape") && parse_slice(&dim)) return dim;
    } else if (index < 0 && name == "broadcast") {
      opdock_dim dim{parse_broadcast(1), -1, -1, 0, 0, kEnd};
      const char next = in_.peek();
      if ((next == '[' || next == ',' || next == ']') && parse_slice(&dim)) return dim;
    }
    if (in_.failed()) return {};
    in_.rewind(start);
    parts_->exprs.resize(nodes);
    return {parse_choice(0), -1, -1, 0, 0, 0};
  }

  // Parses "(x, chunk(y, 2), …)" behind "broadcast"; returns the node.
  int32_t parse_broadcast(int depth) {
    in_.expect("(");
    int32_t node = -1;
    do {
      in_.peek();
      const size_t start = in_.position();
      const std::string_view name = in_.word();
      const bool is_part = name == "chunk" && schema_.find(name) < 0 && in_.take("(");
      if (!is_part) in_.rewind(start);
      const TensorRef tensor = parse_tensor(depth);
      int64_t parts = 1;
      if (is_part) {
        in_.expect(",");
        in_.peek();
        const size_t at = in_.position();
        parts = integer();
        if (parts < 1) in_.fail("how many parts: 1 or more", at);
        in_.expect(")");
      }
      if (in_.failed()) return -1;
      node = add({OPDOCK_EXPR_BROADCAST, tensor.param, parts, node, -1, -1, tensor.element});
    } while (in_.take(","));
    in_.expect(")");
    return node;
  }

  int64_t integer() {
    in_.peek();
    const size_t start = in_.position();
    int64_t value = 0;
    const std::string_view digits = in_.number();
    const auto [end, problem] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (digits.empty() || problem != std::errc() || end != digits.data() + digits.size()) {
      in_.fail("an integer", start);
    }
    return value;
  }

  // Parses "sum if condition else sum", or a sum.
  int32_t parse_choice(int depth) {
    const int32_t value = parse_sum(depth);
    if (!in_.take("if")) return value;
    const int32_t condition = parse_condition();
    in_.expect("else");
    return add(OPDOCK_EXPR_CHOOSE, value, parse_sum(depth), condition);
  }
  // Parses a bool parameter, or an optional one, which is a condition on whether it is given.
  int32_t parse_condition() {
    const bool is_not = in_.take("not");
    in_.peek();
    const size_t start = in_.position();
    const int32_t index = schema_.find(in_.word());
    const SchemaType none;
    const SchemaType& type = index < 0 ? none : type_of(index);
    const bool boolean = type.tag == OPDOCK_TAG_BOOL && !type.list;
    if (!boolean && !type.optional) {
      in_.fail("a bool parameter, or one that may be None", start);
      return -1;
    }
    const int32_t node = add({boolean ? uint32_t{OPDOCK_EXPR_TRUE} : uint32_t{OPDOCK_EXPR_GIVEN},
                              index, 0, -1, -1, -1, -1});
    return is_not ? add(OPDOCK_EXPR_NOT, node) : node;
  }

  int32_t parse_sum(int depth) {
    int32_t left = parse_product(depth);
    while (!in_.failed()) {
      if (in_.take("+")) {
        left = add(OPDOCK_EXPR_ADD, left, parse_product(depth));
      } else if (in_.take("-")) {
        left = add(OPDOCK_EXPR_SUBTRACT, left, parse_product(depth));
      } else {
        break;
      }
    }
    return left;
  }
  int32_t parse_product(int depth) {
    int32_t left = parse_primary(depth);
    while (!in_.failed()) {
      if (in_.take("*")) {
        left = add(OPDOCK_EXPR_MULTIPLY, left, parse_primary(depth));
      } else if (in_.take("//")) {
        left = add(OPDOCK_EXPR_DIVIDE, left, parse_primary(depth));
      } else {
        break;
      }
    }
    return left;
  }
  int32_t parse_primary(int depth) {
    if (depth > 32) in_.fail("at most 32 nested parentheses, brackets or signs");
    if (in_.failed()) return -1;
    if (in_.take("(")) {
      const int32_t inner = parse_choice(depth + 1);
      in_.expect(")");
      return inner;
    }
    if (in_.take("-")) return add(OPDOCK_EXPR_NEGATE, parse_primary(depth + 1));
    const char next = in_.peek();
    if (next >= '0' && next <= '9')
      return add({OPDOCK_EXPR_CONSTANT, -1, integer(), -1, -1, -1, -1});
    const size_t start = in_.position();
    const std::string_view name = in_.word();
    if (name.empty()) {
      in_.fail(
          "a number, an int parameter, x.shape[i], x.ndim, len(xs), max(…), min(…), broadcast(…) "
          "or "
          "'('",
          start);
      return -1;
    }
    if (!loop_.empty() && name == loop_) return add(OPDOCK_EXPR_INDEX, -1);
    if (schema_.find(name) < 0 && in_.peek() == '(') return parse_function(name, start, depth + 1);
    return parse_argument(name, start, depth + 1);
  }

  int32_t parse_function(std::string_view name, size_t start, int depth) {
    if (name == "broadcast") {
      const int32_t shape = parse_broadcast(depth);
      in_.expect("[");
      const int32_t at = add({OPDOCK_EXPR_CONSTANT, -1, integer(), -1, -1, -1, -1});
      in_.expect("]");
      return add(OPDOCK_EXPR_SIZE_OF, shape, at);
    }
    in_.expect("(");
    int32_t node = -1;
    if (name == "len") {
      in_.peek();
      const size_t at = in_.position();
      const int32_t list = schema_.find(in_.word());
      if (list < 0 || !type_of(list).list) in_.fail("a parameter that is a list", at);
      node = add({OPDOCK_EXPR_LENGTH, list, 0, -1, -1, -1, -1});
    } else if (name == "max" || name == "min") {
      const uint32_t kind = name == "max" ? OPDOCK_EXPR_MAX : OPDOCK_EXPR_MIN;
      node = parse_sum(depth);
      in_.expect(",");
      do {
        node = add(kind, node, parse_sum(depth));
      } while (in_.take(","));
    } else {
      in_.fail("len, max, min or broadcast", start);
    }
    in_.expect(")");
    return node;
  }

  // Parses x.shape[0], x.ndim, n or sizes[i].
  int32_t parse_argument(std::string_view name, size_t start, int depth) {
    const int32_t index = schema_.find(name);
    if (index < 0) in_.fail("a parameter of the schema", start);
    if (in_.failed()) return -1;
    if (is_tensor(index)) {
      const int32_t element = parse_element(index, depth);
      in_.expect(".");
      if (in_.take("ndim")) return add({OPDOCK_EXPR_NDIM, index, 0, -1, -1, -1, element});
      if (!in_.take("shape")) in_.fail("shape or ndim");
      in_.expect("[");
      const int32_t at = add({OPDOCK_EXPR_CONSTANT, -1, integer(), -1, -1, -1, -1});
      in_.expect("]");
      return add({OPDOCK_EXPR_SIZE, index, 0, at, -1, -1, element});
    }
    if (type_of(index).tag != OPDOCK_TAG_INT) in_.fail("an int or tensor parameter", start);
    return add({OPDOCK_EXPR_INT, index, 0, -1, -1, -1, parse_element(index, depth)});
  }

  void parse_dtype(opdock_shape* shape) {
    in_.expect("dtype");
    shape->dtype_param = shape->dtype_element = -1;
    if (in_.take("like")) {
      const TensorRef like = parse_tensor();
      shape->dtype_param = like.param;
      shape->dtype_element = like.element;
      return;
    }
    in_.peek();
    const size_t start = in_.position();
    const std::string_view name = in_.word();
    if (const std::optional<opdock_dtype> dtype = opdock::parse_dtype(name)) {
      shape->dtype = *dtype;
      return;
    }
    const int32_t index = schema_.find(name);
    if (index >= 0 && type_of(index).tag == OPDOCK_TAG_DTYPE && !type_of(index).list) {
      shape->dtype_param = index;
    } else {
      in_.fail(
          "a dtype such as float32, a ScalarType parameter, or \"like\" and a tensor parameter",
          start);
    }
  }

  static constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();

  Scanner in_;
  const Schema& schema_;
  const SchemaReturn& result_;
  std::string_view loop_;  // the name of the element's number
  std::shared_ptr<ShapeRule::Parts> parts_ = std::make_shared<ShapeRule::Parts>();
};

}  // namespace

ShapeRule::ShapeRule(std::shared_ptr<const Parts> parts)
    : parts_(std::move(parts)), view_(&parts_->view) {}

std::optional<ShapeRule> parse_shape_rule(std::string_view text, const Schema& schema,
                                          const SchemaReturn& result, Reason* error) {
  ShapeRuleParser parser(text, schema, result);
  std::optional<ShapeRule> rule = parser.parse();
  if (!rule && error != nullptr) *error = parser.reason();
  return rule;
}

std::optional<std::vector<ShapeRule>> parse_shape_rules(std::span<const std::string> texts,
                                                        const Schema& schema, Reason* error) {
  std::vector<ShapeRule> rules;
  if (texts.size() != schema.fresh_results()) {
    *error = make_reason(
        Code::kSchemaInvalid, std::to_string(texts.size()) + " shape rules",
        std::to_string(schema.fresh_results()) + ", one for each result with fresh tensors");
    return std::nullopt;
  }
  for (const SchemaReturn& result : schema.returns) {
    if (!result.is_fresh_tensor()) continue;
    std::optional<ShapeRule> rule = parse_shape_rule(texts[rules.size()], schema, result, error);
    if (!rule) return std::nullopt;
    rules.push_back(*std::move(rule));
  }
  return rules;
}

}  // namespace opdock
