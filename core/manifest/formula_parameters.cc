// SPDX-License-Identifier: Apache-2.0
#include "manifest/formula_parameters.h"

#include <string>
#include <utility>

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
      default:
        throw Error(OPDOCK_INVALID_ARGUMENT,
                    "parameter '" + param.name + "': found " + to_text(param.type) +
                        ", wanted Tensor, float, int, bool or str, which formulas take");
    }
    params.push_back(std::move(made));
  }
  return params;
}

}  // namespace opdock
