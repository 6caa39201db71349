// Tests opdock/kernel_names.hpp with the header that opdock-pack writes from
// every_type/plugin.toml. tests/author/test_kernel_indices.py covers what must not compile.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "opdock/kernel_names.hpp"

namespace {

using opdock::bfloat16;
using opdock::Dtype;
using opdock::dtype_of;
using opdock::half;
using opdock::KernelFamily;
using opdock::KernelNumbers;
using opdock::KernelTypes;

// ---- the header's list: lists expanded, in the declared order

constexpr auto& kNames = opdock::kernels_in_plugin_toml::names;
static_assert(kNames.size() == 17);
static_assert(kNames[0] == "fill<float>" && kNames[1] == "fill<double>");
static_assert(kNames[2] == "n::rows<float, 1>" && kNames[3] == "n::rows<float, 4>");
static_assert(kNames[4] == "n::rows<opdock::half, 1>");
static_assert(kNames[16] == "plain");

static_assert(OPDOCK_KERNEL_INDEX("fill<float>") == 0);
static_assert(OPDOCK_KERNEL_INDEX("n::rows<float,16>") == 8);
static_assert(OPDOCK_KERNEL_INDEX("n::rows2<int>") == 9);
static_assert(OPDOCK_KERNEL_INDEX("plain") == 16);

// ---- families

constexpr auto kFill = OPDOCK_KERNEL_FAMILY("fill", KernelTypes<double, float>);
static_assert(kFill(dtype_of<float>()) == 0 && kFill(dtype_of<double>()) == 1);

// plugin.toml does not list every combination.
constexpr auto kRows =
    OPDOCK_KERNEL_FAMILY("n::rows", KernelTypes<float, half, bfloat16>, KernelNumbers<1, 4, 16>);
static_assert(kRows(dtype_of<float>(), 1) == 2 && kRows(dtype_of<float>(), 4) == 3);
static_assert(kRows(dtype_of<half>(), 1) == 4 && kRows(dtype_of<half>(), 4) == 5);
static_assert(kRows(dtype_of<bfloat16>(), 1) == 6 && kRows(dtype_of<bfloat16>(), 4) == 7);
static_assert(kRows(dtype_of<float>(), 16) == 8);

constexpr auto kShift = OPDOCK_KERNEL_FAMILY("shift", KernelNumbers<12, -1, 0>,
                                             KernelTypes<float, half>, KernelNumbers<8>);
static_assert(kShift(-1, dtype_of<half>(), 8) == 10 && kShift(-1, dtype_of<float>(), 8) == 11);
static_assert(kShift(12, dtype_of<half>(), 8) == 14 && kShift(12, dtype_of<float>(), 8) == 15);

TEST(KernelFamily, IsAskedAtRunTime) {
  // Compares each name of the list with one that is put together here from its values.
  for (const char* name : {"float", "opdock::half", "opdock::bfloat16"}) {
    const std::string type = name;
    const Dtype dtype = type == "float"          ? dtype_of<float>()
                        : type == "opdock::half" ? dtype_of<half>()
                                                 : dtype_of<bfloat16>();
    for (const int64_t items : {1, 4})
      EXPECT_EQ(kNames[kRows(dtype, items)],
                "n::rows<" + type + ", " + std::to_string(items) + ">");
  }
}

std::string refused(Dtype dtype, int64_t number) {
  try {
    return "the index " + std::to_string(kRows(dtype, number));
  } catch (const opdock::Error& error) {
    EXPECT_EQ(error.status(), OPDOCK_INTERNAL);
    return error.what();
  }
}

TEST(KernelFamily, WhatIsNotListedIsRefusedByName) {
  EXPECT_NE(refused(dtype_of<half>(), 16).find("no kernel n::rows<float16, 16> in plugin.toml"),
            std::string::npos)
      << refused(dtype_of<half>(), 16);
  EXPECT_NE(refused(dtype_of<double>(), 1).find("n::rows<float64, 1>"), std::string::npos);
  EXPECT_NE(refused(dtype_of<float>(), -4).find("n::rows<float32, -4>"), std::string::npos);
  EXPECT_NE(refused(dtype_of<float>(), int64_t{1} << 33).find("8589934592"), std::string::npos);
}

// ---- what the macros refuse to compile

using TypesAndNumbers = KernelFamily<KernelTypes<float, half>, KernelNumbers<1, 4>>;

template <size_t N>
constexpr TypesAndNumbers family(const std::string_view (&listed)[N]) {
  return TypesAndNumbers("f", listed, N);
}

constexpr std::string_view kAll[] = {"g<int>",        "f<float, 1>",  "f<opdock::half,4>",
                                     "f2<float>",     "ff<float, 1>", "f",
                                     "n::f<float, 2>"};
static_assert(!family(kAll).has_others() && family(kAll).uses_all());
constexpr std::string_view kAnotherNumber[] = {"f<float, 1>", "f<opdock::half, 4>", "f<float, 2>"};
static_assert(family(kAnotherNumber).has_others());
constexpr std::string_view kLongerNumber[] = {"f<float, 1>", "f<opdock::half, 4>", "f<float, 12>"};
static_assert(family(kLongerNumber).has_others());
constexpr std::string_view kAnotherType[] = {"f<float, 1>", "f<opdock::half, 4>", "f<float4, 1>"};
static_assert(family(kAnotherType).has_others());
constexpr std::string_view kMoreArguments[] = {"f<float, 1>", "f<opdock::half, 4>",
                                               "f<float, 1, 2>"};
static_assert(family(kMoreArguments).has_others());
constexpr std::string_view kMoreBehind[] = {"f<float, 1>", "f<opdock::half, 4>", "f<float, 1>::g"};
static_assert(family(kMoreBehind).has_others());
constexpr std::string_view kFewerArguments[] = {"f<float, 1>", "f<opdock::half, 4>", "f<float>"};
static_assert(family(kFewerArguments).has_others());
constexpr std::string_view kOtherOrder[] = {"f<float, 1>", "f<opdock::half, 4>", "f<1, float>"};
static_assert(family(kOtherOrder).has_others());
constexpr std::string_view kNoHalf[] = {"f<float, 1>", "f<float, 4>"};
static_assert(!family(kNoHalf).has_others() && !family(kNoHalf).uses_all());
constexpr std::string_view kNoFour[] = {"f<float, 1>", "f<opdock::half, 1>"};
static_assert(!family(kNoFour).has_others() && !family(kNoFour).uses_all());

static_assert(opdock::detail::index_of("f", kAll, 7) == 5);
static_assert(opdock::detail::index_of("f<float,1>", kAll, 7) == opdock::detail::kNoKernel);

constexpr std::string_view kOddNumbers[] = {"f<float, 1>", "f<opdock::half, 4>", "f<float, 4u>"};
static_assert(family(kOddNumbers).has_others());
constexpr std::string_view kHuge[] = {"f<float, 1>", "f<opdock::half, 4>",
                                      "f<float, 18446744073709551617>"};
static_assert(family(kHuge).has_others());
constexpr std::string_view kMinus[] = {"f<float, 1>", "f<opdock::half, 4>", "f<float, -1>"};
static_assert(family(kMinus).has_others());

}  // namespace
