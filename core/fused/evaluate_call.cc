// SPDX-License-Identifier: Apache-2.0
#include "fused/evaluate_call.h"

#include <cstring>
#include <vector>

#include "formula/evaluate.h"
#include "opdock/types.hpp"
#include "schema/dtype.h"

namespace opdock {
namespace {

using formula::Array;
using formula::Type;

template <class T>
T element_at(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// Adds the element at that address.
void append_element(const char* at, Array* array) {
  switch (array->type) {
    case Type::kBool:
      return array->integer.push_back(element_at<uint8_t>(at) != 0);
    case Type::kUint8:
      return array->integer.push_back(element_at<uint8_t>(at));
    case Type::kInt8:
      return array->integer.push_back(element_at<int8_t>(at));
    case Type::kInt16:
      return array->integer.push_back(element_at<int16_t>(at));
    case Type::kInt32:
      return array->integer.push_back(element_at<int32_t>(at));
    case Type::kInt64:
      return array->integer.push_back(element_at<int64_t>(at));
    case Type::kFloat16:
      return array->real.push_back(static_cast<double>(float{element_at<half>(at)}));
    case Type::kBfloat16:
      return array->real.push_back(static_cast<double>(float{element_at<bfloat16>(at)}));
    case Type::kFloat32:
      return array->real.push_back(static_cast<double>(element_at<float>(at)));
    case Type::kFloat64:
      return array->real.push_back(element_at<double>(at));
  }
}

Array array_of(const opdock_tensor& x, Type type) {
  Array array;
  array.type = type;
  array.shape.assign(x.shape, x.shape + x.ndim);
  int64_t count = 1;
  for (const int64_t size : array.shape) count *= size;
  const char* const first = static_cast<const char*>(x.data) + x.byte_offset;
  for (int64_t i = 0; i < count; ++i) {
    int64_t offset = 0, rest = i;
    for (int32_t d = x.ndim - 1; d >= 0; --d) {
      offset += rest % x.shape[d] * x.strides[d];
      rest /= x.shape[d];
    }
    append_element(first + offset * formula::size_of(type), &array);
  }
  return array;
}

void write_array(const Array& array, const opdock_tensor& out) {
  char* const first = static_cast<char*>(out.data) + out.byte_offset;
  if (!array.real.empty()) {
    std::memcpy(first, array.real.data(), array.real.size() * sizeof array.real[0]);
    return;
  }
  const auto size = static_cast<size_t>(formula::size_of(array.type));
  // Integers wrap to their type: their lowest bytes, which come first.
  for (size_t i = 0; i < array.integer.size(); ++i)
    std::memcpy(first + i * size, &array.integer[i], size);
}

}  // namespace

void evaluate_call(const FusedInstance& instance, const opdock_value* args,
                   const opdock_value* results) {
  std::vector<Array> inputs;
  for (size_t i = 0; i < instance.tensors.size(); ++i)
    inputs.push_back(
        array_of(*args[instance.tensors[i]].as.tensor, instance.graph.inputs()[i].type));
  std::vector<double> scalars;
  for (const uint32_t param : instance.numbers)
    scalars.push_back(args[param].tag == OPDOCK_TAG_FLOAT
                          ? args[param].as.f64
                          : static_cast<double>(args[param].as.i64));
  const std::vector<Array> found = formula::evaluate(instance.graph, inputs, scalars);
  for (size_t i = 0; i < found.size(); ++i) write_array(found[i], *results[i].as.tensor);
}

}  // namespace opdock
