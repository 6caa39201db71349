// Tensors of any type and layout for the tests of formulas, read and written element by element.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "formula/interpreter.h"

namespace opdock::formula {

// A number of any type: real holds floats, exactly; integer the others.
struct Any {
  long double real = 0;
  int64_t integer = 0;
};

inline double from_half(uint16_t bits) {
  const int exponent = bits >> 10 & 31, digits = bits & 1023;
  double value = exponent == 31  ? (digits ? NAN : HUGE_VAL)
                 : exponent == 0 ? std::ldexp(digits, -24)
                                 : std::ldexp(1024 + digits, exponent - 25);
  return bits & 0x8000 ? -value : value;
}

inline Any read(Type type, const unsigned char* at) {
  const auto as = [&](auto value) {
    std::memcpy(&value, at, sizeof value);
    return value;
  };
  switch (type) {
    case Type::kBool:
      return {0, as(uint8_t{}) != 0};
    case Type::kUint8:
      return {0, as(uint8_t{})};
    case Type::kInt8:
      return {0, as(int8_t{})};
    case Type::kInt16:
      return {0, as(int16_t{})};
    case Type::kInt32:
      return {0, as(int32_t{})};
    case Type::kInt64:
      return {0, as(int64_t{})};
    case Type::kFloat16:
      return {from_half(as(uint16_t{})), 0};
    case Type::kBfloat16: {
      const uint32_t bits = uint32_t{as(uint16_t{})} << 16;
      float value;
      std::memcpy(&value, &bits, sizeof value);
      return {value, 0};
    }
    case Type::kFloat32:
      return {as(float{}), 0};
    case Type::kFloat64:
      return {as(double{}), 0};
  }
  return {};
}

// A tensor with a shape, and strides in elements that may be 0 or negative.
struct Tensor {
  Tensor(Type of, std::vector<int64_t> dims, std::vector<int64_t> steps)
      : type(of), shape(std::move(dims)), strides(std::move(steps)) {
    int64_t low = 0, high = 0;
    for (size_t d = 0; d < shape.size(); ++d)
      if (shape[d] > 0) (strides[d] < 0 ? low : high) += (shape[d] - 1) * strides[d];
    // One element before the first, so that vectors are not aligned.
    first = (1 - low) * size_of(type);
    bytes.resize(static_cast<size_t>((high - low + 2) * size_of(type)));
  }
  static std::vector<int64_t> contiguous(const std::vector<int64_t>& shape) {
    std::vector<int64_t> strides(shape.size());
    int64_t step = 1;
    for (size_t d = shape.size(); d-- > 0; step *= shape[d]) strides[d] = step;
    return strides;
  }
  Tensor(Type of, const std::vector<int64_t>& dims) : Tensor(of, dims, contiguous(dims)) {}

  int64_t numel() const {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    return count;
  }
  // The offset of an element that is counted in row-major order.
  int64_t offset(int64_t i) const {
    int64_t at = 0;
    for (size_t d = shape.size(); d-- > 0; i /= shape[d]) at += i % shape[d] * strides[d];
    return at;
  }
  unsigned char* data() { return bytes.data() + first; }
  unsigned char* at(int64_t i) { return data() + offset(i) * size_of(type); }
  Any get(int64_t i) { return read(type, at(i)); }
  template <class T>
  void put(int64_t i, T value) {
    std::memcpy(at(i), &value, sizeof value);
  }
  Operand operand() {
    return {data(), static_cast<int>(shape.size()), shape.data(), strides.data()};
  }

  Type type;
  std::vector<int64_t> shape, strides;
  int64_t first = 0;
  std::vector<unsigned char> bytes;
};

// Fills a tensor with numbers of all sizes, among them special ones. plain: floats from -4 to 4.
inline void randomize(Tensor* tensor, std::mt19937* random, bool plain = false) {
  const auto pick = [&](int n) { return static_cast<int>((*random)() % static_cast<unsigned>(n)); };
  std::uniform_real_distribution<double> near(-4, 4);
  const double special[] = {0,        -0.0,      1,   -1,   0.5,   -0.5, 2,   3,
                            HUGE_VAL, -HUGE_VAL, NAN, 1e30, 1e-40, 88,   -88, 20.5};
  const bool is_wide = tensor->type == Type::kFloat64;
  const auto real = [&] {
    const int way = plain ? 3 : pick(4);
    if (way == 0) return special[pick(16)];
    if (way == 1)
      return std::ldexp(near(*random), pick(is_wide ? 1000 : 250) - (is_wide ? 500 : 125));
    if (way == 2) return near(*random) * 32;
    return near(*random);
  };
  for (int64_t i = 0; i < tensor->numel(); ++i) {
    const auto bits = static_cast<uint32_t>((*random)());
    const int64_t integer =
        pick(2) ? pick(9) - 4 : static_cast<int64_t>(uint64_t{bits} << 32 | (*random)());
    switch (tensor->type) {
      case Type::kBool:
        tensor->put(i, static_cast<uint8_t>(bits & 1));
        break;
      case Type::kUint8:
      case Type::kInt8:
        tensor->put(i, static_cast<int8_t>(integer));
        break;
      case Type::kInt16:
        tensor->put(i, static_cast<int16_t>(integer));
        break;
      case Type::kInt32:
        tensor->put(i, pick(50) ? static_cast<int32_t>(integer) : INT32_MIN);
        break;
      case Type::kInt64:
        tensor->put(i, pick(50) ? integer : INT64_MIN);
        break;
      case Type::kFloat16: {
        // The sign, an exponent around that of 1, and any digits.
        const uint32_t half = (bits & 0x83ff) | static_cast<uint32_t>(13 + pick(4)) << 10;
        tensor->put(i, static_cast<uint16_t>(plain ? half : pick(2) ? half : bits));
        break;
      }
      case Type::kBfloat16: {
        const float value = static_cast<float>(real());
        uint32_t as_bits;
        std::memcpy(&as_bits, &value, sizeof value);
        tensor->put(i, static_cast<uint16_t>(as_bits >> 16));
        break;
      }
      case Type::kFloat32:
        tensor->put(i, static_cast<float>(real()));
        break;
      case Type::kFloat64:
        tensor->put(i, real());
        break;
    }
  }
}

// Returns the unit in the last place of a number of this type.
inline long double ulp(Type type, long double value) {
  struct Float {
    int digits, least;
  };
  const Float as = type == Type::kFloat16    ? Float{11, -14}
                   : type == Type::kBfloat16 ? Float{8, -126}
                   : type == Type::kFloat32  ? Float{24, -126}
                                             : Float{53, -1022};
  int exponent = 0;
  std::frexp(value, &exponent);
  return std::ldexp(1.0L, std::max(exponent - 1, as.least) - as.digits + 1);
}
inline long double largest(Type type) {
  return type == Type::kFloat16    ? 65504.0L
         : type == Type::kBfloat16 ? std::ldexp(255.0L, 120)
         : type == Type::kFloat32  ? std::numeric_limits<float>::max()
                                   : std::numeric_limits<double>::max();
}
// Returns how many units in the last place `got` is from `want`; infinite for the wrong NaN or
// infinity.
inline long double distance(Type type, long double got, long double want) {
  constexpr long double kFar = std::numeric_limits<long double>::infinity();
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) == std::isnan(got) ? 0 : kFar;
  if (got == want) return 0;
  if (std::isinf(want)) return kFar;
  const long double most = largest(type);
  if (std::isinf(got)) got = std::copysign(most + ulp(type, most), got);
  want = std::min(std::max(want, -most - ulp(type, most)), most + ulp(type, most));
  return std::fabs(got - want) / ulp(type, want);
}

// Runs a graph on these tensors, in as many parts as `parts` says.
inline void run(const Graph& graph, std::vector<Tensor*> inputs, std::vector<Tensor*> results,
                const std::vector<Value>& scalars = {}, int64_t parts = 1) {
  std::vector<Operand> in, out;
  std::vector<const void*> from;
  std::vector<void*> to;
  for (Tensor* tensor : inputs) {
    in.push_back(tensor->operand());
    from.push_back(tensor->data());
  }
  for (Tensor* tensor : results) {
    out.push_back(tensor->operand());
    to.push_back(tensor->data());
  }
  const Space space = make_space(graph, in, out);
  const Interpreter interpreter(graph);
  const int64_t pieces = interpreter.pieces(space);
  for (int64_t part = 0; part < parts; ++part)
    interpreter.run(space, from.data(), to.data(), scalars.data(), pieces * part / parts,
                    pieces * (part + 1) / parts);
}

}  // namespace opdock::formula
