// SPDX-License-Identifier: Apache-2.0
#include "call/shape_rule.h"

#include <charconv>

#include "call/dtype.h"
#include "call/scanner.h"
#include "opdock/overlap.hpp"

namespace opdock {
namespace {

using Kind = DimExpr::Kind;

class ShapeRuleParser {
 public:
  ShapeRuleParser(std::string_view text, const Schema& schema) : in_(text), schema_(schema) {}

  std::optional<ShapeRule> parse() {
    if (in_.take("like")) {
      rule_.like = tensor_param();
    } else if (in_.take("[")) {
      parse_list();
    } else {
      in_.fail("\"like\" and a tensor parameter, or '[' and dimensions");
    }
    if (in_.take(",")) parse_dtype_clause();
    if (!in_.failed() && !in_.at_end()) in_.fail("\", dtype …\" or the end of the rule");
    if (in_.failed()) return std::nullopt;
    return std::move(rule_);
  }

  Reason reason() const { return make_reason(Code::kSchemaInvalid, in_.found(), in_.wanted()); }

 private:
  int param(std::string_view name, size_t start) {
    int index = schema_.find(name);
    if (index < 0) in_.fail("a parameter of the schema", start);
    return index;
  }
  // A parameter of type Tensor or Tensor?.
  int tensor_param() {
    in_.peek();
    size_t start = in_.position();
    int index = param(in_.word(), start);
    if (index >= 0 && !is_tensor(index)) in_.fail("a tensor parameter", start);
    return in_.failed() ? -1 : index;
  }
  bool is_tensor(int index) const {
    const SchemaType& type = schema_.params[static_cast<size_t>(index)].type;
    return type.tag == OPDOCK_TENSOR && !type.list;
  }

  void parse_list() {
    if (in_.take("]")) return;
    while (!in_.failed()) {
      rule_.dims.push_back(parse_item());
      if (in_.take("]")) return;
      if (!in_.take(",")) in_.fail("an operator, ',' or ']'");
    }
  }

  // x.shape, x.shape[1:], x.shape[:-1], or an expression.
  DimItem parse_item() {
    in_.peek();
    size_t start = in_.position();
    std::string_view name = in_.word();
    if (!name.empty() && in_.take(".") && in_.take("shape")) {
      DimItem item;
      item.slice = true;
      item.param = schema_.find(name);
      if (!in_.take("[")) return checked_slice(std::move(item), start);
      item.from = optional_integer();
      if (in_.take(":")) {
        item.to = optional_integer();
        in_.expect("]");
        return checked_slice(std::move(item), start);
      }
    }
    in_.rewind(start);
    return DimItem{false, parse_sum(0), -1, {}, {}};
  }
  DimItem checked_slice(DimItem item, size_t start) {
    if (item.param < 0 || !is_tensor(item.param)) in_.fail("a tensor parameter", start);
    return item;
  }

  std::optional<int64_t> optional_integer() {
    if (in_.peek() == ':' || in_.peek() == ']') return std::nullopt;
    return integer();
  }
  int64_t integer() {
    in_.peek();
    size_t start = in_.position();
    int64_t value = 0;
    std::string_view digits = in_.number();
    auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (digits.empty() || problem != std::errc() || end != digits.data() + digits.size()) {
      in_.fail("an integer", start);
    }
    return value;
  }

  DimExpr binary(Kind kind, DimExpr left, DimExpr right) {
    DimExpr expr;
    expr.kind = kind;
    expr.operands.push_back(std::move(left));
    expr.operands.push_back(std::move(right));
    return expr;
  }
  DimExpr parse_sum(int depth) {
    DimExpr left = parse_product(depth);
    while (!in_.failed()) {
      if (in_.take("+")) {
        left = binary(Kind::kAdd, std::move(left), parse_product(depth));
      } else if (in_.take("-")) {
        left = binary(Kind::kSubtract, std::move(left), parse_product(depth));
      } else {
        break;
      }
    }
    return left;
  }
  DimExpr parse_product(int depth) {
    DimExpr left = parse_primary(depth);
    while (!in_.failed()) {
      if (in_.take("*")) {
        left = binary(Kind::kMultiply, std::move(left), parse_primary(depth));
      } else if (in_.take("//")) {
        left = binary(Kind::kDivide, std::move(left), parse_primary(depth));
      } else {
        break;
      }
    }
    return left;
  }
  DimExpr parse_primary(int depth) {
    DimExpr expr;
    if (depth > 32) in_.fail("at most 32 nested parentheses or signs");
    if (in_.failed()) return expr;
    if (in_.take("(")) {
      expr = parse_sum(depth + 1);
      in_.expect(")");
      return expr;
    }
    if (in_.take("-")) {
      expr.kind = Kind::kNegate;
      expr.operands.push_back(parse_primary(depth + 1));
      return expr;
    }
    char next = in_.peek();
    if (next >= '0' && next <= '9') {
      expr.constant = integer();
      return expr;
    }
    size_t start = in_.position();
    std::string_view name = in_.word();
    if (name.empty()) {
      in_.fail("a number, an int parameter, x.shape[i], x.ndim or '('", start);
      return expr;
    }
    expr.param = param(name, start);
    if (in_.failed()) return expr;
    if (is_tensor(expr.param)) {
      in_.expect(".");
      if (in_.take("ndim")) {
        expr.kind = Kind::kNdim;
        return expr;
      }
      if (!in_.take("shape")) in_.fail("shape or ndim");
      expr.kind = Kind::kDim;
      in_.expect("[");
      expr.constant = integer();
      in_.expect("]");
      return expr;
    }
    const SchemaType& type = schema_.params[static_cast<size_t>(expr.param)].type;
    if (type.tag != OPDOCK_INT || type.list) in_.fail("an int or tensor parameter", start);
    expr.kind = Kind::kParam;
    return expr;
  }

  void parse_dtype_clause() {
    in_.expect("dtype");
    if (in_.take("like")) {
      rule_.dtype_param = tensor_param();
      return;
    }
    in_.peek();
    size_t start = in_.position();
    std::string_view name = in_.word();
    rule_.dtype = parse_dtype(name);
    if (rule_.dtype) return;
    int index = schema_.find(name);
    if (index >= 0) {
      const SchemaType& type = schema_.params[static_cast<size_t>(index)].type;
      if (type.tag == OPDOCK_DTYPE && !type.list) rule_.dtype_param = index;
    }
    if (rule_.dtype_param < 0) {
      in_.fail(
          "a dtype such as float32, a ScalarType parameter, or \"like\" and a tensor parameter",
          start);
    }
  }

  Scanner in_;
  const Schema& schema_;
  ShapeRule rule_;
};

class Evaluator {
 public:
  Evaluator(const Schema& schema, std::span<const opdock_value> args, std::string* problem)
      : schema_(schema), args_(args), problem_(problem) {}

  bool run(const ShapeRule& rule, opdock_output* out) {
    *out = {};
    const opdock_tensor* like = nullptr;
    if (rule.like >= 0) {
      like = tensor(rule.like);
      if (like == nullptr) return false;
      for (int32_t i = 0; i < like->ndim; ++i) {
        if (!append(out, like->shape[i])) return false;
      }
    }
    for (const DimItem& item : rule.dims) {
      if (!(item.slice ? append_slice(item, out) : append_value(item.value, out))) return false;
    }
    return set_dtype(rule, like, out) && set_strides(out);
  }

 private:
  bool fail(std::string text) {
    *problem_ = std::move(text);
    return false;
  }
  const std::string& name(int param) const {
    return schema_.params[static_cast<size_t>(param)].name;
  }
  const opdock_tensor* tensor(int param) {
    const opdock_value& value = args_[static_cast<size_t>(param)];
    if (value.tag == OPDOCK_TENSOR) return value.as.tensor;
    fail("argument '" + name(param) + "' is " + std::string(tag_text(value.tag)) +
         ", and the shape rule needs a tensor");
    return nullptr;
  }
  bool append(opdock_output* out, int64_t size) {
    if (size < 0) return fail("the shape rule gives a negative size " + std::to_string(size));
    if (out->ndim >= OPDOCK_MAX_NDIM) {
      return fail("the shape rule gives more than " + std::to_string(OPDOCK_MAX_NDIM) +
                  " dimensions");
    }
    out->shape[out->ndim++] = size;
    return true;
  }
  bool append_value(const DimExpr& expr, opdock_output* out) {
    int64_t size = 0;
    return value(expr, &size) && append(out, size);
  }
  bool append_slice(const DimItem& item, opdock_output* out) {
    const opdock_tensor* x = tensor(item.param);
    if (x == nullptr) return false;
    int64_t from = clamp(item.from.value_or(0), x->ndim);
    int64_t to = clamp(item.to.value_or(x->ndim), x->ndim);
    for (int64_t i = from; i < to; ++i) {
      if (!append(out, x->shape[i])) return false;
    }
    return true;
  }
  static int64_t clamp(int64_t index, int64_t ndim) {
    if (index < 0) index += ndim;
    return index < 0 ? 0 : index > ndim ? ndim : index;
  }

  bool value(const DimExpr& expr, int64_t* out) {
    switch (expr.kind) {
      case Kind::kConstant:
        *out = expr.constant;
        return true;
      case Kind::kParam: {
        const opdock_value& arg = args_[static_cast<size_t>(expr.param)];
        if (arg.tag != OPDOCK_INT) {
          return fail("argument '" + name(expr.param) + "' is " + std::string(tag_text(arg.tag)) +
                      ", and the shape rule needs an int");
        }
        *out = arg.as.i64;
        return true;
      }
      case Kind::kNdim: {
        const opdock_tensor* x = tensor(expr.param);
        if (x != nullptr) *out = x->ndim;
        return x != nullptr;
      }
      case Kind::kDim: {
        const opdock_tensor* x = tensor(expr.param);
        if (x == nullptr) return false;
        int64_t index = expr.constant < 0 ? expr.constant + x->ndim : expr.constant;
        if (index < 0 || index >= x->ndim) {
          return fail("argument '" + name(expr.param) + "' has " + std::to_string(x->ndim) +
                      " dimensions, and the shape rule asks for its size " +
                      std::to_string(expr.constant));
        }
        *out = x->shape[index];
        return true;
      }
      case Kind::kNegate: {
        int64_t operand = 0;
        if (!value(expr.operands[0], &operand)) return false;
        return !__builtin_sub_overflow(int64_t{0}, operand, out) || overflow();
      }
      default:
        return arithmetic(expr, out);
    }
  }
  bool arithmetic(const DimExpr& expr, int64_t* out) {
    int64_t left = 0, right = 0;
    if (!value(expr.operands[0], &left) || !value(expr.operands[1], &right)) return false;
    switch (expr.kind) {
      case Kind::kAdd:
        return !__builtin_add_overflow(left, right, out) || overflow();
      case Kind::kSubtract:
        return !__builtin_sub_overflow(left, right, out) || overflow();
      case Kind::kMultiply:
        return !__builtin_mul_overflow(left, right, out) || overflow();
      default:
        if (right == 0) return fail("the shape rule divides by zero");
        if (left == INT64_MIN && right == -1) return overflow();
        *out = left / right;
        if (left % right != 0 && (left < 0) != (right < 0)) --*out;  // towards -∞, as in Python
        return true;
    }
  }
  bool overflow() { return fail("the shape rule overflows 64 bits"); }

  bool set_dtype(const ShapeRule& rule, const opdock_tensor* like, opdock_output* out) {
    if (rule.dtype) {
      out->dtype = *rule.dtype;
    } else if (rule.dtype_param >= 0) {
      const opdock_value& arg = args_[static_cast<size_t>(rule.dtype_param)];
      if (arg.tag == OPDOCK_DTYPE) {
        out->dtype = arg.as.dtype;
      } else {
        const opdock_tensor* x = tensor(rule.dtype_param);
        if (x == nullptr) return false;
        out->dtype = x->dtype;
      }
    } else if (like != nullptr) {
      out->dtype = like->dtype;
    } else {
      for (const opdock_value& arg : args_) {
        if (arg.tag != OPDOCK_TENSOR) continue;
        out->dtype = arg.as.tensor->dtype;
        return true;
      }
      return fail("the shape rule has no dtype clause, and no argument is a tensor");
    }
    return true;
  }
  bool set_strides(opdock_output* out) {
    int64_t stride = 1;
    for (int32_t i = out->ndim - 1; i >= 0; --i) {
      out->strides[i] = stride;
      const int64_t size = out->shape[i] > 1 ? out->shape[i] : 1;
      int64_t next = 0;
      if (!__builtin_mul_overflow(stride, size, &next)) {
        stride = next;
      } else if (views::has_elements(out->ndim, out->shape)) {  // else they do not matter
        return overflow();
      }
    }
    return true;
  }

  const Schema& schema_;
  std::span<const opdock_value> args_;
  std::string* problem_;
};

}  // namespace

std::optional<ShapeRule> parse_shape_rule(std::string_view text, const Schema& schema,
                                          Reason* error) {
  ShapeRuleParser parser(text, schema);
  std::optional<ShapeRule> rule = parser.parse();
  if (!rule && error != nullptr) *error = parser.reason();
  return rule;
}

bool evaluate(const ShapeRule& rule, const Schema& schema, std::span<const opdock_value> args,
              opdock_output* out, std::string* problem) {
  return Evaluator(schema, args, problem).run(rule, out);
}

}  // namespace opdock
