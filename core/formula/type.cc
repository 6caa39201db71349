// SPDX-License-Identifier: Apache-2.0
#include "formula/type.h"

#include <algorithm>

namespace opdock::formula {
namespace {

struct Row {
  std::string_view name;
  Category category;
  int size;
};
constexpr Row kRows[kNumTypes] = {
    {"bool", Category::kBool, 1},     {"uint8", Category::kInteger, 1},
    {"int8", Category::kInteger, 1},  {"int16", Category::kInteger, 2},
    {"int32", Category::kInteger, 4}, {"int64", Category::kInteger, 8},
    {"float16", Category::kFloat, 2}, {"bfloat16", Category::kFloat, 2},
    {"float32", Category::kFloat, 4}, {"float64", Category::kFloat, 8},
};

const Row& row(Type type) {
  return kRows[static_cast<int>(type)];
}

// Returns the type of two operands of the same level.
Type promote_equals(Type a, Type b) {
  if (a == b) return a;
  const Type low = std::min(a, b), high = std::max(a, b);
  if (low == Type::kUint8 && high == Type::kInt8) return Type::kInt16;
  if (low == Type::kFloat16 && high == Type::kBfloat16) return Type::kFloat32;
  return high;
}

}  // namespace

Category category(Type type) {
  return row(type).category;
}

int size_of(Type type) {
  return row(type).size;
}

std::string_view name_of(Type type) {
  return row(type).name;
}

std::optional<Type> find_type(std::string_view name) {
  for (int i = 0; i < kNumTypes; ++i)
    if (kRows[i].name == name) return static_cast<Type>(i);
  return std::nullopt;
}

Type compute_type(Type type) {
  return type == Type::kFloat16 || type == Type::kBfloat16 ? Type::kFloat32 : type;
}

Type promote(Type a, Level a_level, Type b, Level b_level) {
  if (a_level == b_level) return promote_equals(a, b);
  const Type strong = a_level > b_level ? a : b, weak = a_level > b_level ? b : a;
  if (category(weak) <= category(strong)) return strong;
  // A number of a higher category counts as PyTorch's default dtype of that category. A tensor
  // without dimensions keeps its own.
  if (std::min(a_level, b_level) != Level::kNumber) return weak;
  return is_float(weak) ? Type::kFloat32 : Type::kInt64;
}

}  // namespace opdock::formula
