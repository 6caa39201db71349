// Tests conversions on the CPU, at each instruction set level, against their definition.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "harness.h"
#include "opdock/types.hpp"

namespace opdock_test::convert_copy_plugin {
namespace {

// Enough to take every lane of a vector and a remainder.
constexpr int64_t kCount = 3 * 64 + 5;

template <class T>
constexpr bool is_half_width =
    std::is_same_v<T, opdock::half> || std::is_same_v<T, opdock::bfloat16>;
template <class T>
constexpr bool is_floating = is_half_width<T> || std::is_floating_point_v<T>;

// Returns numbers that conversions treat differently; each `first` begins at another one.
template <class T>
std::vector<T> numbers(int64_t first) {
  const double some[] = {0,         -0.0,    0.99,     -0.99,      1.5,        2.5,    -7,
                         127.5,     255.9,   256,      -256,       2049,       65504,  65520,
                         1e-8,      1e-40,   0x1p31,   -0x1p31,    0x1p31 - 1, 0x1p32, 0x1p53,
                         0x1p63,    -0x1p63, 1e19,     3.4e38,     3.5e38,     -1e300, INFINITY,
                         -INFINITY, NAN,     16777217, 1 + 0x1p-11};
  std::vector<T> all;
  for (int64_t i = 0; i < kCount; ++i) {
    const double value = some[static_cast<size_t>(first + i) % std::size(some)];
    if constexpr (is_half_width<T>) {
      all.push_back(static_cast<float>(value));
    } else if constexpr (std::is_floating_point_v<T>) {
      all.push_back(static_cast<T>(value));
    } else {
      using Limits = std::numeric_limits<T>;
      const bool fits = value > static_cast<double>(Limits::min()) - 1 &&
                        value < static_cast<double>(Limits::max());
      all.push_back(fits ? static_cast<T>(value) : i % 2 != 0 ? Limits::min() : Limits::max());
    }
  }
  return all;
}

// long double holds the numbers of every type exactly.
template <class To>
To definition(long double value) {
  if constexpr (std::is_same_v<To, bool>) {
    return value != 0;
  } else if constexpr (is_half_width<To>) {
    return To(static_cast<float>(value));
  } else if constexpr (std::is_floating_point_v<To>) {
    return static_cast<To>(value);
  } else {
    const long double whole = std::trunc(value);
    if (std::isnan(value)) return 0;
    if (whole < std::numeric_limits<To>::min()) return std::numeric_limits<To>::min();
    if (whole > std::numeric_limits<To>::max()) return std::numeric_limits<To>::max();
    return static_cast<To>(whole);
  }
}
template <class To, class From>
To definition_of(From value) {
  if constexpr (is_floating<From> || is_floating<To> || std::is_same_v<To, bool>) {
    if constexpr (is_half_width<From>) return definition<To>(static_cast<float>(value));
    return definition<To>(static_cast<long double>(value));
  } else {
    return static_cast<To>(static_cast<uint64_t>(value));  // the low bits
  }
}

template <class T>
bool is_nan(T value) {
  if constexpr (is_half_width<T>) return std::isnan(static_cast<float>(value));
  if constexpr (std::is_floating_point_v<T>) return std::isnan(value);
  return false;
}

template <class T>
struct Line {
  explicit Line(T* data) {
    tensor = {data, {OPDOCK_CPU, 0}, 1, opdock::dtype_of<T>(), &count, &stride, 0};
    value = {OPDOCK_TAG_TENSOR, 0, {.tensor = &tensor}};
  }
  int64_t count = kCount, stride = 1;
  opdock_tensor tensor;
  opdock_value value;
};

template <class From, class To>
void check() {
  static const Op op("convert_copy", "copy_to_host");
  const std::string pair = opdock::dtype_of<From>().name() + " to " + opdock::dtype_of<To>().name();
  for (const int64_t first : {0, 1, 13}) {
    std::vector<From> all = numbers<From>(first);
    From from[kCount];
    To to[kCount];
    std::copy(all.begin(), all.end(), from);
    const Line<From> src(from);
    const Line<To> dst(to);
    const Result result = op.call({dst.value, src.value}, {});
    ASSERT_EQ(result.status, OPDOCK_OK) << result.text;
    for (int64_t i = 0; i < kCount; ++i) {
      const To wanted = definition_of<To>(from[i]);
      const bool same = std::memcmp(&to[i], &wanted, sizeof wanted) == 0;
      ASSERT_TRUE(same || (is_nan(to[i]) && is_nan(wanted)))
          << pair << ", element " << i << ": found " << static_cast<double>(to[i]) << ", wanted "
          << static_cast<double>(wanted) << " of " << static_cast<double>(from[i]);
    }
  }
}

template <class From, class... To>
void check_to_all() {
  (check<From, To>(), ...);
}
template <class... T>
void check_all_pairs() {
  (check_to_all<T, T...>(), ...);
}

TEST(ConvertCopy, AllPairsOfTypesAreConvertedAsDefined) {
  check_all_pairs<bool, uint8_t, int32_t, int64_t, opdock::half, opdock::bfloat16, float, double>();
}

}  // namespace
}  // namespace opdock_test::convert_copy_plugin
