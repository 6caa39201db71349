// Tests kernels that do not end, and divisions and conversions without a defined result.
// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "test_support.h"

namespace softgpu {
namespace {

class Budget : public testing::Test {
 protected:
  void SetUp() override {
    configure({.seed = 0, .workers = 0, .counters = false, .steps = 1 << 20});
  }
  void TearDown() override { configure({}); }
};

TEST_F(Budget, ALoopWithoutEnd) {
  const DeviceArray<uint32_t> y(std::vector<uint32_t>(64, 27));
  for (const char* loop : {
           "while (vote_any(y != nullptr)) {}",
           "for (;;) block_barrier();",
           "for (uint32_t n = y[thread_index()]; n != 0; n = n % 2 ? 3 * n + 1 : n / 2) {}",
           "for (;;) y[thread_index()] = 1;",
       }) {
    const Kernel kernel = make_kernel(
        "OPDOCK_KERNEL(64) loop(uint32_t* y) {\n  " + std::string(loop) + "\n}\n", "loop");
    expect_finding(finding_of(launch_of(kernel, 1, 64, y.data())),
                   {"a loop without end: the block has not ended", "test.cu:4", "thread (",
                    "steps    1048576, the budget of each block", "\"steps\" of OPDOCK_SOFTGPU"});
    EXPECT_EQ(last_fault(), Fault::kOther);
  }
}

TEST_F(Budget, AWaitForNobody) {
  const DeviceArray<uint32_t> flag(std::vector<uint32_t>(1, 0));
  const Kernel kernel = make_kernel(
      "OPDOCK_KERNEL(64) wait(uint32_t* flag) {\n"
      "  while (atomic_add(flag, 0u) == 0u) {}\n"
      "}\n",
      "wait");
  const std::string found = finding_of(launch_of(kernel, 1, 64, flag.data()));
  expect_finding(found, {"a wait without end, by atomic operations that change nothing",
                         "test.cu:4", "steps    1048576", "byte 0 of an allocation of 4 bytes"});
  EXPECT_EQ(found.find("have not begun"), found.npos) << found;
}

// Each block waits for all others, and the one that begins first waits for blocks that are not
// resident.
TEST_F(Budget, AWaitForABlockThatIsNotResident) {
  const Kernel kernel = make_kernel(
      "OPDOCK_KERNEL(32) meet(uint32_t* here) {\n"
      "  if (thread_index() == 0) {\n"
      "    atomic_exchange(here + block_index(), 1u);\n"
      "    for (int i = 0; i < grid_blocks(); ++i)\n"
      "      while (atomic_add(here + i, 0u) == 0u) {}\n"
      "  }\n"
      "  block_barrier();\n"
      "}\n",
      "meet");
  for (uint64_t seed = 0; seed < 5; ++seed) {
    configure({.seed = seed, .workers = 1, .counters = false, .steps = 1 << 20});
    const DeviceArray<uint32_t> here(std::vector<uint32_t>(4, 0));
    expect_finding(finding_of(launch_of(kernel, 4, 32, here.data())),
                   {"a wait without end", "test.cu:7", "3 of 4 have not begun",
                    "none may wait for one that is not resident"});
  }
  // A block that waits only for blocks that have begun makes progress, and so does one whose wait
  // ends in time.
  const Kernel chain = make_kernel(
      "OPDOCK_KERNEL(256) chain(uint32_t* turn) {\n"
      "  if (thread_index() == 0) {\n"
      "    const uint32_t mine = atomic_add(turn, 1u);\n"
      "    while (atomic_add(turn + 1, 0u) != mine) {}\n"
      "    atomic_add(turn + 1, 1u);\n"
      "  }\n"
      "  block_barrier();\n"
      "}\n",
      "chain");
  for (unsigned workers : {1u, 2u}) {
    configure({.seed = 3, .workers = workers, .counters = false, .steps = kSteps});
    const DeviceArray<uint32_t> turn(std::vector<uint32_t>(2, 0));
    EXPECT_EQ(finding_of(launch_of(chain, 100, 256, turn.data())), "");
    EXPECT_EQ(turn.get()[1], 100u);
  }
}

TEST_F(Budget, IsEachBlocksOwn) {
  const Kernel kernel = make_kernel(
      "OPDOCK_KERNEL(32) work(int* y, int n) {\n"
      "  int sum = 0;\n"
      "  for (int i = 0; i < n; ++i) { sum += y[thread_index()]; y[thread_index()] = sum; }\n"
      "}\n",
      "work");
  configure({.seed = 0, .workers = 1, .counters = false, .steps = 20000});
  const DeviceArray<int> y(std::vector<int>(32, 0));
  Launch launch = launch_of(kernel, 1, 32, y.data(), 100);
  EXPECT_EQ(finding_of(launch), "");
  expect_finding(finding_of(launch_of(kernel, 1, 32, y.data(), 2000)), {"steps    20000"});
  for (int i = 0; i < 200; ++i) ASSERT_EQ(finding_of(launch), "");
}

struct Division {
  const char* type;
  const char* operation;
  long long left, right;
  const char* text;
};

TEST(Divide, ByZeroIsAFinding) {
  const char kZero[] = "integer division by zero", kOver[] = "integer division that overflows";
  const Division all[] = {{"int32_t", "/", 7, 0, kZero},
                          {"int32_t", "%", 7, 0, kZero},
                          {"uint32_t", "/", 7, 0, kZero},
                          {"uint32_t", "%", 7, 0, kZero},
                          {"int64_t", "/", 7, 0, kZero},
                          {"uint64_t", "%", 7, 0, kZero},
                          {"uint8_t", "/", 7, 0, kZero},
                          {"int32_t", "/", -2147483648LL, -1, kOver},
                          {"int32_t", "%", -2147483648LL, -1, kOver},
                          {"int64_t", "/", -9223372036854775807LL - 1, -1, kOver},
                          {"uint64_t", "/", 7, 1LL << 32, ""},
                          {"int32_t", "/", 7, -1, ""}};
  std::string program =
      "OPDOCK_KERNEL(64) divide(long long* y, const long long* x, int which) {\n"
      "  const long long left = x[0], right = x[1 + thread_index()];\n";
  for (size_t i = 0; i < std::size(all); ++i) {
    const std::string type = std::string("static_cast<opdock::") + all[i].type + ">";
    program += "  if (which == " + std::to_string(i) + ") y[thread_index()] = " + type + "(left) " +
               all[i].operation + " " + type + "(right);\n";
  }
  const Kernel kernel = make_kernel(program + "}\n", "divide");
  for (size_t i = 0; i < std::size(all); ++i) {
    std::vector<long long> values(65, 3);
    values[0] = all[i].left;
    values[1 + 41] = all[i].right;
    const DeviceArray<long long> x(values), y(64);
    const std::string found =
        finding_of(launch_of(kernel, 1, 64, y.data(), x.data(), static_cast<int>(i)));
    if (all[i].text[0] == '\0') {
      EXPECT_EQ(found, "") << i;
    } else {
      expect_finding(found, {all[i].text, "test.cu:" + std::to_string(5 + i), "thread (41, 0, 0)"});
    }
  }
}

struct Conversion {
  const char* type;
  double value;
  bool is_held;
};

// A GPU clamps such numbers. The engine reports them and does not use the number that a CPU gives.
TEST(Convert, ANumberThatTheIntegerDoesNotHoldIsAFinding) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Conversion all[] = {{"int32_t", 2147483647.0, true},  {"int32_t", 2147483648.0, false},
                            {"int32_t", -2147483648.9, true}, {"int32_t", -2147483649.0, false},
                            {"int32_t", nan, false},          {"uint32_t", -0.9, true},
                            {"uint32_t", -1.0, false},        {"uint32_t", 4294967296.0, false},
                            {"int64_t", 9.3e18, false},       {"int64_t", -9.2e18, true},
                            {"uint8_t", 255.9, true},         {"uint8_t", 256.0, false}};
  std::string program =
      "OPDOCK_KERNEL(64) convert(long long* y, const double* x, int which) {\n"
      "  const double value = x[thread_index()];\n";
  for (size_t i = 0; i < std::size(all); ++i) {
    program += "  if (which == " + std::to_string(i) +
               ") y[thread_index()] = static_cast<opdock::" + all[i].type + ">(value);\n";
  }
  const Kernel kernel = make_kernel(program + "}\n", "convert");
  for (size_t i = 0; i < std::size(all); ++i) {
    std::vector<double> values(64, 3);
    values[41] = all[i].value;
    const DeviceArray<double> x(values);
    const DeviceArray<long long> y(64);
    const std::string found =
        finding_of(launch_of(kernel, 1, 64, y.data(), x.data(), static_cast<int>(i)));
    if (all[i].is_held) {
      EXPECT_EQ(found, "") << i;
    } else {
      expect_finding(found, {"that the integer type does not hold",
                             "test.cu:" + std::to_string(5 + i), "thread (41, 0, 0)"});
    }
  }
}

TEST(Divide, OtherOverflowWrapsAsOnAGpu) {
  const Kernel kernel = make_kernel(
      "OPDOCK_KERNEL(1) wrap(int* y, int most) {\n"
      "  y[0] = most + 1;\n"
      "  y[1] = -(most + 1);\n"
      "  y[2] = most * 2;\n"
      "  y[3] = -2 - most;\n"
      "}\n",
      "wrap");
  const DeviceArray<int> y(4);
  EXPECT_EQ(finding_of(launch_of(kernel, 1, 1, y.data(), 2147483647)), "");
  const int least = -2147483647 - 1;
  EXPECT_EQ(y.get(), (std::vector<int>{least, least, -2, 2147483647}));
}

}  // namespace
}  // namespace softgpu
