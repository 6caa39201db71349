// SPDX-License-Identifier: Apache-2.0
#include "operator.h"

#include "random.h"

namespace opdock::torch {

namespace {

bool has(uint32_t flags, uint32_t flag) {
  return (flags & flag) != 0;
}

bool is_type_of_torch(uint32_t tag) {
  switch (tag) {
    case OPDOCK_TAG_BOOL:
    case OPDOCK_TAG_INT:
    case OPDOCK_TAG_FLOAT:
    case OPDOCK_TAG_STRING:
    case OPDOCK_TAG_DTYPE:
    case OPDOCK_TAG_DEVICE:
    case OPDOCK_TAG_TENSOR:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::string describe(opdock_function* function, const std::string& name, Operator* out) {
  const opdock_function_info& info = *opdock_describe(function);
  *out = {};
  out->function = function;
  out->info = &info;
  out->name = name;
  out->is_random = has(info.flags, OPDOCK_OP_RANDOM);
  if (out->is_random && !can_draw()) return "an op that draws random numbers";
  if (has(info.flags, OPDOCK_OP_RETAINS)) return "an op that keeps its arguments";
  for (uint32_t i = 0; i < info.num_params; ++i) {
    const opdock_param& param = info.params[i];
    if (param.tag == OPDOCK_TAG_GENERATOR && has(param.flags, OPDOCK_PARAM_OPTIONAL)) continue;
    if (!is_type_of_torch(param.tag))
      return "the parameter '" + std::string(param.name) + "' of a type that torch does not have";
    const bool is_written = has(param.flags, OPDOCK_PARAM_WRITTEN);
    out->is_written = out->is_written || is_written;
    out->parameters.push_back({i, param.tag, has(param.flags, OPDOCK_PARAM_OPTIONAL),
                               has(param.flags, OPDOCK_PARAM_LIST),
                               has(param.flags, OPDOCK_PARAM_OPTIONAL_ELEMENTS), is_written,
                               param.device == OPDOCK_ON_OP_DEVICE});
  }
  for (uint32_t i = 0; i < info.num_results; ++i) {
    const opdock_result& result = info.results[i];
    if (result.param >= 0) continue;
    if (result.tag != OPDOCK_TAG_TENSOR) return "a result that is no tensor";
    const bool is_list = has(result.flags, OPDOCK_PARAM_LIST);
    const bool is_optional = has(result.flags, OPDOCK_PARAM_OPTIONAL);
    out->results.push_back({i, is_optional, is_list});
    out->is_variable = out->is_variable || is_list || is_optional;
    ++out->num_fresh;
  }
  return "";
}

}  // namespace opdock::torch
