// Tests the table of opdock.gemm/1 as a plugin in C uses it: phases, structs, addresses, and the
// warning without a BLAS.
// SPDX-License-Identifier: Apache-2.0
#include "opdock/gemm.h"

#include <gtest/gtest.h>

#include <vector>

#include "unit/call/support.h"

namespace opdock::testing_support {
namespace {

using A = Arguments;

const opdock_gemm_table* table(const opdock_call* call) {
  return static_cast<const opdock_gemm_table*>(call->host->get_extension(OPDOCK_GEMM_1));
}

// The GEMM that the ops below request.
opdock_gemm wanted;

// D (2 x 2) is A (2 x 3) times B (3 x 2).
struct Numbers {
  std::vector<float> a = {1, 2, 3, 4, 5, 6}, b = {1, 0, 2, -1, 0, 3}, d = {9, 9, 9, 9};
  Numbers() {
    wanted = {};
    wanted.struct_size = sizeof wanted;
    wanted.m = wanted.n = 2;
    wanted.k = 3;
    wanted.batch = 1;
    wanted.alpha = 1.0f;
    wanted.a = {a.data(), kF32, 0, 3, 0, nullptr};
    wanted.b = {b.data(), kF32, 0, 2, 0, nullptr};
    wanted.d = {d.data(), kF32, 0, 2, 0, nullptr};
  }
};

// what: 0 correct use, 1 run in plan, 2 plan in run, 3 prepare in run.
opdock_status plan_gemm(const opdock_call* call, const opdock_value* args, uint32_t, opdock_plan*) {
  uint64_t bytes = 0;
  if (args[0].as.i64 == 1) return table(call)->run(call, &wanted, nullptr, 0);
  return table(call)->plan(call, &wanted, &bytes);
}
opdock_status run_gemm(const opdock_call* call, const opdock_value* args, uint32_t, opdock_value*,
                       uint32_t) {
  uint64_t bytes = 0;
  if (args[0].as.i64 == 2) return table(call)->plan(call, &wanted, &bytes);
  if (args[0].as.i64 == 3) return table(call)->prepare(call, &wanted);
  return table(call)->run(call, &wanted, nullptr, 0);
}
const opdock_op* gemm_op() {
  static const opdock_op op = make_op("g(int what) -> ()", plan_gemm, run_gemm);
  return &op;
}

TEST(Gemm, MultipliesForAPluginInC) {
  Numbers numbers;
  TestFunction f(gemm_op());
  ASSERT_EQ(f.invoke({A::integer(0)}), OPDOCK_OK) << f.error;
  EXPECT_EQ(numbers.d, (std::vector<float>{5, 7, 14, 13}));
  // This test links no BLAS, but the system may have one. A warning, if any, comes only once.
  const std::string logged = f.resolver.logged;
  if (!logged.empty()) {
    EXPECT_NE(logged.find("2 products of matrices are computed by plain kernels, which are slow: "
                          "gemm-library-missing: "),
              std::string::npos)
        << logged;
  }
  ASSERT_EQ(f.invoke({A::integer(0)}), OPDOCK_OK) << f.error;
  EXPECT_EQ(f.resolver.logged, logged);
}

TEST(Gemm, IsRefusedInAnotherPhase) {
  Numbers numbers;
  TestFunction f(gemm_op());
  for (const int what : {1, 2, 3}) {
    EXPECT_EQ(f.invoke({A::integer(what)}), OPDOCK_INTERNAL);
    EXPECT_NE(std::string(f.error).find("another phase"), std::string::npos) << f.error;
  }
  EXPECT_EQ(numbers.d, std::vector<float>(4, 9.0f));
}

TEST(Gemm, RefusesAStructThatIsTooShort) {
  Numbers numbers;
  wanted.struct_size = sizeof wanted - 4;
  TestFunction f(gemm_op());
  EXPECT_EQ(f.invoke({A::integer(0)}), OPDOCK_INTERNAL);
  EXPECT_NE(std::string(f.error).find("sizeof(opdock_gemm)"), std::string::npos) << f.error;
}

TEST(Gemm, TakesTheStructOfANewerHeader) {
  Numbers numbers;
  struct {
    opdock_gemm known;
    uint64_t more;
  } newer{wanted, ~0ull};
  newer.known.struct_size = sizeof newer;
  static const opdock_gemm* longer;
  longer = &newer.known;
  static const opdock_op op =
      make_op("g(int what) -> ()", plan_nothing,
              [](const opdock_call* call, const opdock_value*, uint32_t, opdock_value*, uint32_t) {
                return table(call)->run(call, longer, nullptr, 0);
              });
  TestFunction f(&op);
  ASSERT_EQ(f.invoke({A::integer(0)}), OPDOCK_OK) << f.error;
  EXPECT_EQ(numbers.d, (std::vector<float>{5, 7, 14, 13}));
}

TEST(Gemm, NamesTheAddressThatIsMissing) {
  float c = 0;
  for (void** const address : {&wanted.a.data, &wanted.b.data, &wanted.c.data, &wanted.d.data}) {
    Numbers numbers;
    wanted.c = {&c, kF32, 0, 2, 0, nullptr};
    wanted.beta = 1.0f;
    *address = nullptr;
    TestFunction f(gemm_op());
    EXPECT_EQ(f.invoke({A::integer(0)}), OPDOCK_INTERNAL);
    EXPECT_NE(std::string(f.error).find(".data: found NULL"), std::string::npos) << f.error;
  }
}

TEST(Gemm, RefusesResultsThatLieOverEachOther) {
  Numbers numbers;
  TestFunction f(gemm_op());
  const auto text = [&] { return std::string(f.error); };
  wanted.batch = 2;
  EXPECT_EQ(f.invoke({A::integer(0)}), OPDOCK_INVALID_ARGUMENT);
  EXPECT_NE(text().find("share no element"), std::string::npos) << text();
  wanted.d.stride = 1;
  EXPECT_EQ(f.invoke({A::integer(0)}), OPDOCK_INVALID_ARGUMENT);
  EXPECT_NE(text().find("gemm: d: found stride 1"), std::string::npos) << text();
  wanted.m = -1;
  EXPECT_EQ(f.invoke({A::integer(0)}), OPDOCK_INVALID_ARGUMENT);
  EXPECT_NE(text().find("gemm: m: found -1"), std::string::npos) << text();
  wanted.m = int64_t{1} << 31;
  EXPECT_EQ(f.invoke({A::integer(0)}), OPDOCK_UNSUPPORTED);
}

}  // namespace
}  // namespace opdock::testing_support
