// SPDX-License-Identifier: Apache-2.0
#include "fused/formula_arguments.h"

#include <algorithm>

#include "opdock/types.hpp"
#include "schema/dtype.h"

namespace opdock {
namespace {

using formula::Parameter;
using formula::Type;

[[noreturn]] void refuse_dtype(const Parameter& param, opdock_dtype found) {
  throw Error(OPDOCK_INVALID_ARGUMENT,
              "argument '" + param.name + "': found " + to_text(found) +
                  ", wanted bool, uint8, int8 to int64, float16, bfloat16, float32 or float64; "
                  "convert it first");
}

}  // namespace

std::optional<Type> type_of(opdock_dtype dtype) {
  return dtype.lanes == 1 ? formula::find_type(to_text(dtype)) : std::nullopt;
}

opdock_dtype dtype_of(Type type) {
  return *parse_dtype(formula::name_of(type));
}

formula::Argument argument_of(const Parameter& param, const opdock_value& value) {
  formula::Argument argument;
  argument.is_present = value.tag != OPDOCK_TAG_NONE;
  if (!argument.is_present) return argument;
  switch (param.kind) {
    case Parameter::Kind::kTensor: {
      const opdock_tensor& x = *value.as.tensor;
      const std::optional<Type> type = type_of(x.dtype);
      if (!type) refuse_dtype(param, x.dtype);
      argument.type = *type;
      argument.rank = x.ndim;
      break;
    }
    case Parameter::Kind::kBool:
      argument.flag = value.as.i64 != 0;
      break;
    case Parameter::Kind::kString:
      argument.text.assign(value.as.str->data, value.as.str->size);
      break;
    case Parameter::Kind::kType: {
      const std::optional<Type> type = type_of(value.as.dtype);
      if (!type) refuse_dtype(param, value.as.dtype);
      argument.type = *type;
      break;
    }
    case Parameter::Kind::kFloat:
    case Parameter::Kind::kInt:
      break;
  }
  return argument;
}

void append_key(const formula::Argument& argument, std::string* key) {
  *key += argument.is_present ? '1' : '0';
  *key += static_cast<char>('a' + static_cast<int>(argument.type));
  *key += static_cast<char>('0' + std::min(argument.rank, 2));
  *key += argument.flag ? '1' : '0';
  if (!argument.text.empty()) *key += std::to_string(argument.text.size()) + ":" + argument.text;
}

}  // namespace opdock
