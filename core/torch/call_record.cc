// SPDX-License-Identifier: Apache-2.0
#include "call_record.h"

namespace opdock::torch {

namespace {

Argument::Kind kind_of(uint32_t tag) {
  using Kind = Argument::Kind;
  switch (tag) {
    case OPDOCK_TAG_BOOL:
      return Kind::kBool;
    case OPDOCK_TAG_INT:
      return Kind::kInt;
    case OPDOCK_TAG_FLOAT:
      return Kind::kFloat;
    case OPDOCK_TAG_DTYPE:
      return Kind::kDtype;
    case OPDOCK_TAG_DEVICE:
      return Kind::kDevice;
    default:
      return Kind::kNone;
  }
}

Argument list_argument(StableIValue given, Arena* arena) {
  const auto list = reinterpret_cast<StableListHandle>(given);
  size_t count = 0;
  torch_list_size(list, &count);
  AtenTensorHandle* const tensors = arena->take<AtenTensorHandle>(count);
  for (size_t i = 0; i < count; ++i) {
    StableIValue item = 0;
    torch_list_get_item(list, i, &item);
    tensors[i] = reinterpret_cast<AtenTensorHandle>(item);
  }
  Argument argument;
  argument.kind = Argument::Kind::kList;
  argument.number = static_cast<int64_t>(count);
  argument.tensors = tensors;
  return argument;
}

}  // namespace

Argument recorded_argument(const Parameter& parameter, const opdock_value& value,
                           StableIValue given, Arena* arena) {
  Argument argument;
  if (value.tag == OPDOCK_TAG_NONE) return argument;
  if (parameter.is_optional) given = *reinterpret_cast<const StableIValue*>(given);
  if (parameter.is_list) {
    // Lists of numbers are not recorded (GradientPlans::is_possible).
    return parameter.tag == OPDOCK_TAG_TENSOR ? list_argument(given, arena) : argument;
  }
  switch (parameter.tag) {
    case OPDOCK_TAG_TENSOR:
      argument.kind = Argument::Kind::kTensor;
      argument.tensor = reinterpret_cast<AtenTensorHandle>(given);
      return argument;
    case OPDOCK_TAG_STRING:
      argument.kind = Argument::Kind::kText;
      argument.text = value.as.str->data;
      argument.number = static_cast<int64_t>(value.as.str->size);
      return argument;
    case OPDOCK_TAG_BOOL:
    case OPDOCK_TAG_DTYPE:  // torch sets only the lower bytes
      argument.number = static_cast<int32_t>(given & (parameter.tag == OPDOCK_TAG_BOOL ? 1 : ~0U));
      break;
    default:
      argument.number = static_cast<int64_t>(given);
  }
  argument.kind = kind_of(parameter.tag);
  return argument;
}

}  // namespace opdock::torch
