// SPDX-License-Identifier: Apache-2.0
#include "manifest/formula_parameters.h"

#include <optional>
#include <string>
#include <utility>

#include "base/quantity.h"
#include "opdock/types.hpp"

namespace opdock {

std::vector<formula::Parameter> formula_parameters(const Schema& schema) {
  using formula::Parameter;
  std::vector<Parameter> params;
  for (const SchemaParam& param : schema.params) {
    Parameter made;
    made.name = param.name;
    made.is_optional = param.type.optional;
    const bool is_plain = !param.type.list;
    switch (is_plain ? param.type.tag : OPDOCK_TAG_LIST) {
      case OPDOCK_TAG_TENSOR:
        made.kind = Parameter::Kind::kTensor;
        break;
      case OPDOCK_TAG_FLOAT:
        made.kind = Parameter::Kind::kFloat;
        break;
      case OPDOCK_TAG_INT:
        made.kind = Parameter::Kind::kInt;
        break;
      case OPDOCK_TAG_BOOL:
        made.kind = Parameter::Kind::kBool;
        break;
      case OPDOCK_TAG_STRING:
        made.kind = Parameter::Kind::kString;
        break;
      case OPDOCK_TAG_DTYPE:
        made.kind = Parameter::Kind::kType;
        break;
      default:
        throw Error(OPDOCK_INVALID_ARGUMENT,
                    "parameter '" + param.name + "': found " + to_text(param.type) +
                        ", wanted Tensor, float, int, bool, str or ScalarType, which formulas "
                        "take");
    }
    params.push_back(std::move(made));
  }
  return params;
}

void check_fit(const Schema& schema, const formula::Formula& formula) {
  if (schema.first_tensor() < 0)
    throw formula::Error("found no tensor among the parameters, wanted at least one");
  if (schema.returns.size() != formula.num_results())
    throw formula::Error("found " + quantity(formula.num_results(), "result") +
                         " of the formula, wanted the " + std::to_string(schema.returns.size()) +
                         " of the schema");
  for (const SchemaReturn& result : schema.returns) {
    if (result.type.tag != OPDOCK_TAG_TENSOR || result.type.list || result.type.optional)
      throw formula::Error("found a result of type " + to_text(result.type) +
                           ", wanted Tensor or Tensor(a!)");
  }
}

std::vector<formula::Argument> common_arguments(const Schema& schema, formula::Type type) {
  std::vector<formula::Argument> arguments;
  for (const SchemaParam& param : schema.params) {
    formula::Argument made;
    made.type = type;
    const std::optional<SchemaDefault>& fallback = param.fallback;
    if (param.type.tag == OPDOCK_TAG_DTYPE)
      made.is_present = !fallback || fallback->tag != OPDOCK_TAG_NONE;
    if (param.type.tag == OPDOCK_TAG_BOOL || param.type.tag == OPDOCK_TAG_STRING) {
      made.is_present = !fallback || fallback->tag != OPDOCK_TAG_NONE;
      made.flag = fallback && fallback->integer != 0;
      if (fallback) made.text = fallback->text;
    }
    arguments.push_back(std::move(made));
  }
  return arguments;
}

}  // namespace opdock
