// SPDX-License-Identifier: Apache-2.0
#include "call/tensor_rules.h"

#include <algorithm>
#include <string>
#include <utility>

#include "opdock/tensor.hpp"
#include "schema/scanner.h"

namespace opdock {
namespace {

using Kind = TensorRule::Kind;

bool is_alike(const opdock_tensor& x, const opdock_tensor& other) {
  return Dtype(x.dtype) == Dtype(other.dtype) && x.device.type == other.device.type &&
         x.device.index == other.device.index;
}

bool is_aligned(const opdock_tensor& x) {
  const uint64_t bytes = views::element_bytes(x.dtype);
  const uint64_t address = reinterpret_cast<uintptr_t>(x.data) + x.byte_offset;
  return (bytes & (bytes - 1)) == 0 && (address & (bytes - 1)) == 0;
}

// Each of the following is a rule in the usual case: the tensors have elements, and the size of an
// element is a power of two.
bool are_rows(const opdock_tensor& x) {
  if (x.ndim < 1 || !is_aligned(x)) return false;
  return x.strides[x.ndim - 1] == 1 || x.shape[x.ndim - 1] == 1;
}

bool is_contiguous(const opdock_tensor& x) {
  uint64_t stride = 1;  // of a tensor without elements it may overflow
  for (int32_t i = x.ndim - 1; i >= 0; --i) {
    if (x.shape[i] != 1 && static_cast<uint64_t>(x.strides[i]) != stride) return false;
    stride *= static_cast<uint64_t>(x.shape[i]);
  }
  return is_aligned(x);
}

bool is_like(const opdock_tensor& x, const opdock_tensor& other) {
  if (!is_alike(x, other) || x.ndim != other.ndim) return false;
  for (int32_t i = 0; i < x.ndim; ++i)
    if (x.shape[i] != other.shape[i]) return false;
  return true;
}

bool is_of_columns(const opdock_tensor& x, const opdock_tensor& rows) {
  if (!is_alike(x, rows) || x.ndim != 1 || rows.ndim < 1 || !is_aligned(x)) return false;
  return x.shape[0] == rows.shape[rows.ndim - 1] && (x.strides[0] == 1 || x.shape[0] == 1);
}

void check_rows(Tensor x, const char* name) {
  opdock::check(x, name).contiguous_last_dim().aligned();
}

// Returns the name of the parameter that the shape rule's tensor is always like, if there is a
// tensor; "" if there is none.
std::string_view model_of(const ShapeRule& rule) {
  const opdock_shape_rule& view = rule.view();
  if (view.condition >= 0 && view.otherwise_none == 0) return {};
  Scanner in(view.text);
  return in.take("like") ? in.word() : std::string_view();
}

}  // namespace

TensorRules::TensorRules(std::vector<TensorRule> rules, const Schema& schema,
                         std::span<const ShapeRule> shapes)
    : rules_(std::move(rules)) {
  for (const SchemaParam& param : schema.params) names_.push_back(param.name);
  uint64_t may_be_results = 0;
  for (const TensorRule& rule : rules_)
    if (rule.kind == Kind::kInPlace) may_be_results |= uint64_t{1} << rule.param;
  if (may_be_results != 0) apart_ = ~may_be_results;
  std::erase_if(rules_, [](const TensorRule& rule) { return rule.kind == Kind::kInPlace; });
  size_t shape = 0;
  for (uint32_t i = 0; i < schema.returns.size() && shape < shapes.size(); ++i) {
    if (!schema.returns[i].is_fresh_tensor()) continue;
    const int model = schema.find(model_of(shapes[shape++]));
    for (const TensorRule& rule : rules_)
      if (rule.kind != Kind::kLike && rule.param == model) results_.push_back({i, rule.kind});
  }
  binds_results_ = !results_.empty();
}

bool TensorRules::pass(const opdock_value* args) const {
  for (const TensorRule& rule : rules_) {
    const opdock_value& value = args[rule.param];
    if (value.tag != OPDOCK_TAG_TENSOR) continue;  // None
    const opdock_tensor& x = *value.as.tensor;
    bool is_kept = false;
    switch (rule.kind) {
      case Kind::kRows:
        is_kept = are_rows(x);
        break;
      case Kind::kContiguous:
        is_kept = is_contiguous(x);
        break;
      case Kind::kLike:
        is_kept = is_like(x, *args[rule.other].as.tensor);
        break;
      default:
        is_kept = is_of_columns(x, *args[rule.other].as.tensor);
    }
    if (!is_kept) return false;
  }
  return true;
}

void TensorRules::check(const opdock_value* args) const {
  for (const TensorRule& rule : rules_) {
    const opdock_value& value = args[rule.param];
    if (value.tag != OPDOCK_TAG_TENSOR) continue;
    const Tensor x(value.as.tensor, value.flags);
    const Tensor other(args[rule.other].as.tensor, args[rule.other].flags);
    const char* const name = names_[rule.param].c_str();
    const char* const other_name = names_[rule.other].c_str();
    if (rule.kind == Kind::kRows) {
      opdock::check(x, name).ndim_at_least(1);
      check_rows(x, name);
    } else if (rule.kind == Kind::kContiguous) {
      opdock::check(x, name).contiguous().aligned();
    } else if (rule.kind == Kind::kLike) {
      opdock::check(x, name).like(other, other_name);
    } else {
      opdock::check(x, name)
          .same_dtype_as(other, other_name)
          .same_device_as(other, other_name)
          .shape({other.size(-1)})
          .contiguous()
          .aligned();
    }
  }
}

void TensorRules::check_result(uint32_t result, uint32_t output,
                               const opdock_tensor* tensor) const {
  for (const ResultRule& rule : results_) {
    if (rule.result != result) continue;
    if (rule.kind == Kind::kRows ? are_rows(*tensor) : is_contiguous(*tensor)) continue;
    const std::string name = "output " + std::to_string(output);
    const Tensor x(tensor);
    if (rule.kind == Kind::kRows)
      check_rows(x, name.c_str());
    else
      opdock::check(x, name.c_str()).contiguous().aligned();
  }
}

bool read_tensor_rules(const opdock_op& op, std::span<const ShapeRule> shapes,
                       std::unique_ptr<const TensorRules>* rules, Reason* error) {
  if (!OPDOCK_HAS(&op, opdock_op, tensor_rules) || op.num_tensor_rules == 0) return true;
  const std::optional<Schema> schema = parse_schema(op.schema, error);
  if (!schema) return false;
  const std::vector<std::string> texts(op.tensor_rules, op.tensor_rules + op.num_tensor_rules);
  std::optional<std::vector<TensorRule>> parsed = parse_tensor_rules(texts, *schema, error);
  if (!parsed) return false;
  *rules = std::make_unique<const TensorRules>(*std::move(parsed), *schema, shapes);
  return true;
}

}  // namespace opdock
