// Evaluates a shape rule for the arguments of a call.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "opdock/overlap.hpp"
#include "schema/dtype.h"
#include "schema/shape_rule.h"

namespace opdock {
namespace {

class Evaluator {
 public:
  Evaluator(const opdock_shape_rule& rule, const Schema& schema, std::span<const opdock_value> args,
            std::string* problem)
      : rule_(rule), schema_(schema), args_(args), problem_(problem) {}

  bool count(uint32_t* out) {
    *out = 1;
    if (rule_.otherwise_none != 0) {
      bool there = false;
      if (!condition(rule_.condition, &there)) return false;
      *out = there ? 1 : 0;
    } else if (rule_.count >= 0) {
      int64_t number = 0;
      if (!value(rule_.count, &number)) return false;
      if (number < 0 || number > kMaxTensors) {
        return fail("the shape rule gives " + std::to_string(number) + " tensors, wanted 0 to " +
                    std::to_string(kMaxTensors));
      }
      *out = static_cast<uint32_t>(number);
    }
    return true;
  }

  bool shape(uint32_t index, opdock_output* out) {
    index_ = index;
    *out = {};
    const opdock_shape* chosen = &rule_.then;
    if (rule_.condition >= 0 && rule_.otherwise_none == 0) {
      bool first = false;
      if (!condition(rule_.condition, &first)) return false;
      if (!first) chosen = &rule_.otherwise;
    }
    for (uint32_t i = 0; i < chosen->num_dims; ++i) {
      const opdock_dim& dim = chosen->dims[i];
      const bool is_run = dim.expr < 0 || node(dim.expr).kind == OPDOCK_EXPR_BROADCAST;
      if (!(is_run ? append_run(dim, out) : append_value(dim.expr, out))) return false;
    }
    return set_dtype(*chosen, out) && check_size(*out);
  }

 private:
  bool fail(std::string text) {
    *problem_ = std::move(text);
    return false;
  }
  bool overflow() { return fail("the shape rule overflows 64 bits"); }
  std::string name(int32_t param, int64_t element) const {
    const std::string& name = schema_.params[static_cast<size_t>(param)].name;
    return "'" + name + "'" + (element < 0 ? "" : "[" + std::to_string(element) + "]");
  }
  const opdock_expr& node(int32_t number) const { return rule_.exprs[number]; }

  // Returns the argument or, if `element` is a node and not -1, the element whose number the node
  // gives.
  const opdock_value* argument(int32_t param, int32_t element) {
    const opdock_value& whole = args_[static_cast<size_t>(param)];
    if (element < 0) return &whole;
    int64_t at = 0;
    if (!value(element, &at)) return nullptr;
    if (whole.tag != OPDOCK_TAG_LIST || at < 0 ||
        static_cast<uint64_t>(at) >= whole.as.list->count) {
      const uint64_t count = whole.tag == OPDOCK_TAG_LIST ? whole.as.list->count : 0;
      fail("argument " + name(param, -1) + " has " + std::to_string(count) +
           " elements, and the shape rule needs number " + std::to_string(at));
      return nullptr;
    }
    return &whole.as.list->data[at];
  }
  const opdock_value* argument(int32_t param, int32_t element, uint32_t tag, const char* wanted) {
    const opdock_value* found = argument(param, element);
    if (found == nullptr || found->tag == tag) return found;
    fail("argument " + name(param, -1) + " is " + std::string(tag_text(found->tag)) +
         ", and the shape rule needs " + wanted);
    return nullptr;
  }
  const opdock_tensor* tensor(int32_t param, int32_t element) {
    const opdock_value* found = argument(param, element, OPDOCK_TAG_TENSOR, "a tensor");
    return found == nullptr ? nullptr : found->as.tensor;
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
  bool append_value(int32_t expr, opdock_output* out) {
    int64_t size = 0;
    return value(expr, &size) && append(out, size);
  }
  bool append_run(const opdock_dim& dim, opdock_output* out) {
    if (dim.expr >= 0) return append_broadcast(dim, out);
    const opdock_tensor* x = tensor(dim.param, dim.element);
    if (x == nullptr) return false;
    const int64_t to = clamp(dim.to, x->ndim);
    for (int64_t i = clamp(dim.from, x->ndim); i < to; ++i) {
      if (!append(out, x->shape[i])) return false;
    }
    return true;
  }
  bool append_broadcast(const opdock_dim& dim, opdock_output* out) {
    opdock_output whole = {};
    if (!broadcast(dim.expr, &whole)) return false;
    const int64_t to = clamp(dim.to, whole.ndim);
    for (int64_t i = clamp(dim.from, whole.ndim); i < to; ++i)
      if (!append(out, whole.shape[i])) return false;
    return true;
  }

  // Sets the shape of *out to that to which a list of tensors is broadcast, from the right.
  bool broadcast(int32_t number, opdock_output* out) {
    bool is_any = false;
    for (; number >= 0; number = node(number).a) {
      const opdock_expr& one = node(number);
      const opdock_value* found = argument(one.param, one.element);
      if (found == nullptr) return false;
      if (found->tag != OPDOCK_TAG_TENSOR) continue;
      is_any = true;
      if (!join(*found->as.tensor, one, out)) return false;
    }
    return is_any || fail("the shape rule broadcasts tensors, and all of them are None");
  }
  bool join(const opdock_tensor& x, const opdock_expr& expr, opdock_output* out) {
    if (x.ndim > OPDOCK_MAX_NDIM || (x.ndim == 0 && expr.integer > 1))
      return fail("argument " + name(expr.param, -1) + " has " + std::to_string(x.ndim) +
                  " dimensions, and the shape rule needs others");
    if (x.ndim > out->ndim) {
      const int32_t more = x.ndim - out->ndim;
      std::copy_backward(out->shape, out->shape + out->ndim, out->shape + x.ndim);
      std::fill_n(out->shape, more, 1);
      out->ndim = x.ndim;
    }
    for (int32_t d = 0; d < x.ndim; ++d) {
      const int64_t size = d + 1 == x.ndim ? x.shape[d] / expr.integer : x.shape[d];
      int64_t& all = out->shape[out->ndim - x.ndim + d];
      if (size == 1 || size == all) continue;
      if (all != 1)
        return fail("argument " + name(expr.param, -1) + " has the size " + std::to_string(size) +
                    " where others have " + std::to_string(all) +
                    ", and the shape rule broadcasts them");
      all = size;
    }
    return true;
  }

  static int64_t clamp(int64_t index, int64_t ndim) {
    if (index < 0) index += ndim;
    return std::clamp<int64_t>(index, 0, ndim);
  }

  bool condition(int32_t number, bool* out) {
    const opdock_expr& expr = node(number);
    if (expr.kind == OPDOCK_EXPR_NOT) {
      if (!condition(expr.a, out)) return false;
      *out = !*out;
      return true;
    }
    const opdock_value& value = args_[static_cast<size_t>(expr.param)];
    *out = expr.kind == OPDOCK_EXPR_GIVEN ? value.tag != OPDOCK_TAG_NONE
                                          : value.tag == OPDOCK_TAG_BOOL && value.as.i64 != 0;
    return true;
  }

  bool value(int32_t number, int64_t* out) {
    const opdock_expr& expr = node(number);
    switch (expr.kind) {
      case OPDOCK_EXPR_CONSTANT:
        *out = expr.integer;
        return true;
      case OPDOCK_EXPR_INDEX:
        *out = index_;
        return true;
      case OPDOCK_EXPR_INT: {
        const opdock_value* found = argument(expr.param, expr.element, OPDOCK_TAG_INT, "an int");
        if (found != nullptr) *out = found->as.i64;
        return found != nullptr;
      }
      case OPDOCK_EXPR_LENGTH: {
        const opdock_value* found = argument(expr.param, -1, OPDOCK_TAG_LIST, "a list");
        if (found != nullptr) *out = static_cast<int64_t>(found->as.list->count);
        return found != nullptr;
      }
      case OPDOCK_EXPR_NDIM: {
        const opdock_tensor* x = tensor(expr.param, expr.element);
        if (x != nullptr) *out = x->ndim;
        return x != nullptr;
      }
      case OPDOCK_EXPR_SIZE:
        return size(expr, out);
      case OPDOCK_EXPR_SIZE_OF:
        return size_of(expr, out);
      case OPDOCK_EXPR_CHOOSE: {
        bool first = false;
        return condition(expr.c, &first) && value(first ? expr.a : expr.b, out);
      }
      case OPDOCK_EXPR_NEGATE: {
        int64_t operand = 0;
        if (!value(expr.a, &operand)) return false;
        return !__builtin_sub_overflow(int64_t{0}, operand, out) || overflow();
      }
      default:
        return arithmetic(expr, out);
    }
  }
  bool size(const opdock_expr& expr, int64_t* out) {
    const opdock_tensor* x = tensor(expr.param, expr.element);
    if (x == nullptr) return false;
    const int64_t wanted = node(expr.a).integer;
    const int64_t at = wanted < 0 ? wanted + x->ndim : wanted;
    if (at < 0 || at >= x->ndim) {
      return fail("argument " + name(expr.param, -1) + " has " + std::to_string(x->ndim) +
                  " dimensions, and the shape rule asks for its size " + std::to_string(wanted));
    }
    *out = x->shape[at];
    return true;
  }
  bool size_of(const opdock_expr& expr, int64_t* out) {
    opdock_output whole = {};
    if (!broadcast(expr.a, &whole)) return false;
    const int64_t wanted = node(expr.b).integer;
    const int64_t at = wanted < 0 ? wanted + whole.ndim : wanted;
    if (at < 0 || at >= whole.ndim)
      return fail("the tensors that the shape rule broadcasts have " + std::to_string(whole.ndim) +
                  " dimensions, and it asks for the size " + std::to_string(wanted));
    *out = whole.shape[at];
    return true;
  }
  bool arithmetic(const opdock_expr& expr, int64_t* out) {
    int64_t left = 0, right = 0;
    if (!value(expr.a, &left) || !value(expr.b, &right)) return false;
    switch (expr.kind) {
      case OPDOCK_EXPR_ADD:
        return !__builtin_add_overflow(left, right, out) || overflow();
      case OPDOCK_EXPR_SUBTRACT:
        return !__builtin_sub_overflow(left, right, out) || overflow();
      case OPDOCK_EXPR_MULTIPLY:
        return !__builtin_mul_overflow(left, right, out) || overflow();
      case OPDOCK_EXPR_MAX:
        *out = std::max(left, right);
        return true;
      case OPDOCK_EXPR_MIN:
        *out = std::min(left, right);
        return true;
      default:
        if (right == 0) return fail("the shape rule divides by zero");
        if (left == INT64_MIN && right == -1) return overflow();
        *out = left / right - (left % right != 0 && (left < 0) != (right < 0) ? 1 : 0);
        return true;
    }
  }

  bool set_dtype(const opdock_shape& shape, opdock_output* out) {
    if (shape.dtype.bits != 0) {
      out->dtype = shape.dtype;
      return true;
    }
    if (shape.dtype_param >= 0 &&
        schema_.params[static_cast<size_t>(shape.dtype_param)].type.tag == OPDOCK_TAG_DTYPE) {
      const opdock_value* found = argument(shape.dtype_param, -1, OPDOCK_TAG_DTYPE, "a dtype");
      if (found != nullptr) out->dtype = found->as.dtype;
      return found != nullptr;
    }
    const opdock_tensor* x =
        shape.dtype_param < 0 ? first_tensor() : tensor(shape.dtype_param, shape.dtype_element);
    if (x != nullptr) out->dtype = x->dtype;
    return x != nullptr;
  }
  const opdock_tensor* first_tensor() {
    for (const opdock_value& value : args_) {
      if (value.tag == OPDOCK_TAG_TENSOR) return value.as.tensor;
      if (value.tag != OPDOCK_TAG_LIST) continue;
      for (uint64_t i = 0; i < value.as.list->count; ++i) {
        if (value.as.list->data[i].tag == OPDOCK_TAG_TENSOR)
          return value.as.list->data[i].as.tensor;
      }
    }
    fail("no argument is a tensor, and the shape rule needs one's dtype");
    return nullptr;
  }

  bool check_size(const opdock_output& out) {
    if (!views::has_elements(out.ndim, out.shape)) return true;
    int64_t count = 1;
    for (int32_t i = 0; i < out.ndim; ++i) {
      if (__builtin_mul_overflow(count, out.shape[i], &count)) return overflow();
    }
    return true;
  }

  const opdock_shape_rule& rule_;
  const Schema& schema_;
  std::span<const opdock_value> args_;
  std::string* problem_;
  int64_t index_ = 0;
};

}  // namespace

bool count_tensors(const ShapeRule& rule, const Schema& schema, std::span<const opdock_value> args,
                   uint32_t* count, std::string* problem) {
  return Evaluator(rule.view(), schema, args, problem).count(count);
}

bool evaluate(const ShapeRule& rule, const Schema& schema, std::span<const opdock_value> args,
              uint32_t index, opdock_output* out, std::string* problem) {
  return Evaluator(rule.view(), schema, args, problem).shape(index, out);
}

}  // namespace opdock
