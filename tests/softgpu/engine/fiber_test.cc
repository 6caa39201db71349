// Tests that fibers preserve across a switch what a function preserves across a call: registers,
// local variables and alignment.
// SPDX-License-Identifier: Apache-2.0
#include "fiber.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>

namespace softgpu {
namespace {

constexpr size_t kStackBytes = 256 * 1024;

Context thread_context, contexts[2];
double results[2];
int done = 0;
bool aligned = true;

// Keeps more values live across the switch than there are registers.
double work(int id, bool together) {
  const double scale = id + 1.5;
  double sum = 0, product = 1, last = 0;
  int64_t whole = id, odd = 1, mixed = 7;
  for (int i = 0; i < 200; ++i) {
    sum += std::sqrt(scale * i);
    product *= 1 + scale / (i + 100);
    last = sum - product;
    whole += i * id;
    odd = odd * 3 % 1009;
    mixed ^= whole + odd;
    if (together) switch_fiber(&contexts[id], &contexts[1 - id]);
  }
  return sum + product + last + static_cast<double>(whole + odd + mixed);
}

template <int id>
void entry() {
  enter_fiber(&thread_context);
  alignas(16) volatile char local[16];
  aligned = aligned && reinterpret_cast<uintptr_t>(&local) % 16 == 0;
  results[id] = work(id, true);
  leave_fiber(&contexts[id], ++done == 2 ? &thread_context : &contexts[1 - id]);
}

TEST(Fiber, TwoTakeTurns) {
  // Stacks are reused.
  const std::unique_ptr<char[]> stacks[2] = {std::make_unique<char[]>(kStackBytes),
                                             std::make_unique<char[]>(kStackBytes)};
  for (int round = 0; round < 3; ++round) {
    done = 0;
    prepare_fiber(&contexts[0], stacks[0].get(), kStackBytes, entry<0>);
    prepare_fiber(&contexts[1], stacks[1].get(), kStackBytes, entry<1>);
    switch_fiber(&thread_context, &contexts[0]);
    EXPECT_EQ(done, 2);
    EXPECT_TRUE(aligned);
    for (int id : {0, 1}) EXPECT_EQ(results[id], work(id, false));
  }
}

}  // namespace
}  // namespace softgpu
