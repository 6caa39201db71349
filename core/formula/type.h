// The element types of formulas, and PyTorch's rules for what two of them become.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace opdock::formula {

// The types stand in the order of PyTorch's promotion: a later one can often hold an earlier one.
enum class Type : uint8_t {
  kBool,
  kUint8,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kFloat16,
  kBfloat16,
  kFloat32,
  kFloat64,
};
inline constexpr int kNumTypes = 10;

enum class Category : uint8_t { kBool, kInteger, kFloat };

// The weight of a value where the type of a result is decided: a tensor with dimensions decides
// before one without, and a plain number decides last.
enum class Level : uint8_t { kNumber, kZeroDim, kTensor };

Category category(Type type);
inline bool is_float(Type type) {
  return category(type) == Category::kFloat;
}
inline bool is_integer(Type type) {
  return category(type) == Category::kInteger;
}
// Returns the size of an element in bytes.
int size_of(Type type);
// Returns PyTorch's name, such as "float32".
std::string_view name_of(Type type);
std::optional<Type> find_type(std::string_view name);

// Returns the type in which arithmetic on elements of `type` is done: float32 for the 16-bit
// floats, else the type itself.
Type compute_type(Type type);

// Returns the type to which two operands are converted (torch.result_type). Numbers are kBool,
// kInt64 or kFloat64; next to a tensor of a lower category they count as int64 or float32.
Type promote(Type a, Level a_level, Type b, Level b_level);

}  // namespace opdock::formula
