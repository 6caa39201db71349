// Tests blocks that hand data to each other, correctly and incorrectly.
// SPDX-License-Identifier: Apache-2.0
#include "test_support.h"

namespace softgpu {
namespace {

// Runs two blocks, one of which takes way `produce` and the other way `consume`, in the order that
// the seed gives; returns the text of the findings.
std::string found(const Kernel& kernel, uint32_t threads, size_t produce, size_t consume,
                  uint64_t seed, unsigned workers = 1) {
  configure({.seed = seed, .workers = workers, .counters = false, .steps = kSteps});
  const DeviceArray<int> data(std::vector<int>(128, 1)), out(128);
  const DeviceArray<uint32_t> flags(std::vector<uint32_t>(8, 0));
  const std::string text =
      finding_of(launch_of(kernel, 2, threads, data.data(), flags.data(), out.data(),
                           static_cast<int>(produce), static_cast<int>(consume)));
  configure({});
  return text;
}

constexpr uint64_t kOrders = 10;

// Expects that no order of many leads to a finding.
void expect_clean(const Kernel& kernel, uint32_t threads, size_t produce, size_t consume) {
  for (uint64_t seed = 0; seed < kOrders; ++seed)
    ASSERT_EQ(found(kernel, threads, produce, consume, seed, 1 + seed % 2), "")
        << produce << ", " << consume << ", seed " << seed;
}

// Expects a finding in each of many orders.
void expect_race(const Kernel& kernel, uint32_t threads, size_t produce, size_t consume,
                 const std::vector<std::string>& parts) {
  SCOPED_TRACE(std::to_string(produce) + ", " + std::to_string(consume));
  for (uint64_t seed = 0; seed < kOrders && !testing::Test::HasFailure(); ++seed)
    expect_finding(found(kernel, threads, produce, consume, seed), parts);
}

// The first block to arrive writes data and sets flags[1]; the second waits for the flag and reads.
// One kernel contains all ways of doing so; the launch's arguments select the ways.
struct Ways {
  std::vector<std::string> produce, consume;

  Kernel kernel() const {
    const auto cases = [](const std::vector<std::string>& all, const char* name) {
      std::string text;
      for (size_t i = 0; i < all.size(); ++i)
        text +=
            std::string("    if (") + name + " == " + std::to_string(i) + ") { " + all[i] + " }\n";
      return text;
    };
    return make_kernel(
        "OPDOCK_KERNEL(64) pass(int* data, uint32_t* flags, int* out, int produce, int consume) {\n"
        "  OPDOCK_SHARED(uint32_t, ticket, 1);\n"
        "  const int i = thread_index();\n"
        "  if (i == 0) ticket[0] = atomic_add(flags, 1u);\n"
        "  block_barrier();\n"
        "  if (ticket[0] == 0) {\n" +
            cases(produce, "produce") + "  } else {\n" + cases(consume, "consume") + "  }\n}\n",
        "pass");
  }
};

const char kSet[] = "if (i == 0) atomic_exchange(flags + 1, 1u);";
const char kWait[] = "if (i == 0) while (atomic_add(flags + 1, 0u) == 0u) {}";
const char kFence[] = " device_fence(); ";
const char kBarrier[] = " block_barrier(); ";
const char kWrite[] = "data[i] = i; ";
const char kRead[] = " out[i] = data[block_threads() - 1 - i];";

TEST(Handover, NeedsAFenceOnBothSides) {
  const std::string set = kSet, wait = kWait, fence = kFence, barrier = kBarrier, write = kWrite,
                    read = kRead;
  Ways ways;
  // Either each thread fences for itself, or one thread fences for all that meet it at barriers.
  // The other ways omit a fence.
  ways.produce = {write + fence + barrier + set,
                  write + barrier + fence + set,
                  write + barrier + "if (i == 0) device_fence(); " + set,
                  write + fence + "out[64 + i] = 1;" + barrier + set,
                  write + barrier + set,
                  fence + write + barrier + set,
                  write + barrier + set + fence,
                  fence + barrier + write + barrier + set};
  ways.consume = {wait + barrier + fence + read,
                  wait + fence + barrier + read,
                  wait + barrier + "if (i == 3) device_fence();" + barrier + read,
                  wait + barrier + read,
                  fence + wait + barrier + read,
                  wait + barrier + read + fence};
  const Kernel kernel = ways.kernel();
  for (size_t produce = 0; produce < ways.produce.size(); ++produce) {
    for (size_t consume = 0; consume < ways.consume.size(); ++consume) {
      const std::string race = "race: read of 4 bytes that another block writes";
      if (produce < 4 && consume < 3) expect_clean(kernel, 64, produce, consume);
      if (produce < 4 && consume >= 3)
        expect_race(kernel, 64, produce, consume,
                    {race, "without a device_fence() after the atomic operation", "test.cu:"});
      if (produce >= 4)
        expect_race(kernel, 64, produce, consume, {race, "no barrier orders blocks", "test.cu:"});
    }
  }
}

TEST(Handover, AFenceWithoutABarrierIsItsThreadsAlone) {
  const std::string wait = kWait, read = kRead;
  Ways ways;
  ways.produce = {std::string(kWrite) + kFence + kBarrier + kSet,
                  std::string(kWrite) + kFence + "warp_barrier(); " + kSet};
  ways.consume = {wait + " if (i == 0) device_fence();" + read,
                  wait + " if (i == 0) device_fence(); warp_barrier();" + read,
                  wait + " block_barrier(); device_fence();" + read};
  const Kernel kernel = ways.kernel();
  expect_race(kernel, 64, 0, 0, {"race: read"});
  // A warp barrier suffices within the warp.
  expect_clean(kernel, 32, 0, 1);
  expect_race(kernel, 64, 0, 1, {"race: read"});
  expect_clean(kernel, 32, 1, 2);
}

// Writes after the fence need a fence of their own, which a second stage forgets here. A read of
// data that the other block then overwrites needs one too.
TEST(Handover, EachStageNeedsItsFence) {
  const std::string first =
      "data[i] = i; device_fence(); block_barrier(); if (i == 0) atomic_exchange(flags + 1, 1u); "
      "data[64 + i] = i; ";
  const std::string second = " block_barrier(); if (i == 0) atomic_exchange(flags + 2, 1u);";
  Ways ways;
  ways.produce = {first + kFence + second, first + second,
                  std::string("out[i] = data[i];") + kFence + kBarrier + kSet,
                  std::string("out[i] = data[i];") + kBarrier + kSet};
  ways.consume = {
      "if (i == 0) while (atomic_add(flags + 1, 0u) == 0u) {} "
      "block_barrier(); device_fence(); out[i] = data[63 - i]; "
      "if (i == 0) while (atomic_add(flags + 2, 0u) == 0u) {} "
      "block_barrier(); device_fence(); out[i] = data[127 - i];",
      std::string(kWait) + kBarrier + kFence + " data[i] = 7;",
      std::string(kWait) + kBarrier + " data[i] = 7;"};
  const Kernel kernel = ways.kernel();
  expect_clean(kernel, 64, 0, 0);
  expect_race(kernel, 64, 1, 0, {"race: read of 4 bytes that another block writes"});
  expect_clean(kernel, 64, 2, 1);
  expect_race(kernel, 64, 3, 1, {"race: write of 4 bytes that another block reads"});
  expect_race(kernel, 64, 2, 2, {"without a device_fence() after"});
}

TEST(Handover, BlocksThatHandOverNothing) {
  const Kernel kernel = make_kernel(
      "OPDOCK_KERNEL(32) neighbour(int* x, uint32_t*, int*) {\n"
      "  const int i = static_cast<int>(block_index()) * 32 + thread_index();\n"
      "  x[i] = i;\n"
      "  x[i] = x[(i + 32) % (32 * static_cast<int>(grid_blocks()))];\n"
      "}\n",
      "neighbour");
  for (uint64_t seed = 0; seed < 20; ++seed) {
    configure({.seed = seed, .workers = 1, .counters = false, .steps = kSteps});
    const DeviceArray<int> x(std::vector<int>(64, 1));
    const std::string found = finding_of(launch_of(kernel, 2, 32, x.data(), x.data(), x.data()));
    expect_finding(found, {"race: ", "of 4 bytes that another block", "no barrier orders blocks",
                           "a launch of its own", "test.cu:6"});
    EXPECT_EQ(found.find("without a barrier"), found.npos) << found;
  }
  configure({});
}

// The last block to arrive adds up what all blocks have written, and resets the counter for the
// next launch.
TEST(Handover, TheLastBlockReadsWhatOthersFenced) {
  const Kernel kernel = make_kernel(
      "OPDOCK_KERNEL(64) total(int* parts, uint32_t* count, int* out, int fences) {\n"
      "  OPDOCK_SHARED(uint32_t, ticket, 1);\n"
      "  if (thread_index() == 0) {\n"
      "    if (fences & 4) device_fence();\n"
      "    parts[block_index()] = static_cast<int>(block_index());\n"
      "    if (fences & 2) device_fence();\n"
      "    ticket[0] = atomic_add(count, 1u);\n"
      "    if (fences & 1) device_fence();\n"
      "  }\n"
      "  block_barrier();\n"
      "  if (ticket[0] + 1 != grid_blocks() || thread_index() != 0) return;\n"
      "  int sum = 0;\n"
      "  for (int i = 0; i < grid_blocks(); ++i) sum += parts[i];\n"
      "  *out = sum;\n"
      "  *count = 0;\n"
      "}\n",
      "total");
  const DeviceArray<int> parts(100), out(1);
  const auto launch = [&](const DeviceArray<uint32_t>& count, int fences) {
    return finding_of(launch_of(kernel, 100, 64, parts.data(), count.data(), out.data(), fences));
  };
  for (uint64_t seed = 0; seed < 10; ++seed) {
    configure({.seed = seed, .workers = 2, .counters = false, .steps = kSteps});
    const DeviceArray<uint32_t> count(std::vector<uint32_t>(1, 0));
    for (int again = 0; again < 2; ++again) {
      EXPECT_EQ(launch(count, 3), "");
      EXPECT_EQ(out.get()[0], 4950);
    }
    for (const int fences : {0, 1, 2, 4, 5}) {
      const DeviceArray<uint32_t> other(std::vector<uint32_t>(1, 0));
      expect_finding(launch(other, fences), {"race: read of 4 bytes that another block writes",
                                             "test.cu:15", "test.cu:7"});
    }
  }
  configure({});
}

// Does the same in two stages: the last block of a group hands on what was handed to it.
TEST(Handover, WhatWasHandedOverIsHandedOn) {
  const auto total = [](const std::string& between) {
    return make_kernel(
        "OPDOCK_KERNEL(1) total(int* parts, uint32_t* count, int* out) {\n"
        "  const int block = static_cast<int>(block_index());\n"
        "  parts[block] = block;\n"
        "  device_fence();\n"
        "  if (atomic_add(count + 1 + block / 10, 1u) != 9) return;\n"
        "  " +
            between +
            "\n"
            "  if (atomic_add(count, 1u) != 9) return;\n"
            "  device_fence();\n"
            "  int sum = 0;\n"
            "  for (int i = 0; i < 100; ++i) sum += parts[i];\n"
            "  *out = sum;\n"
            "}\n",
        "total");
  };
  const Kernel right = total("device_fence();"), wrong = total("");
  const DeviceArray<int> parts(100), out(1);
  for (uint64_t seed = 0; seed < 10; ++seed) {
    configure({.seed = seed, .workers = 1, .counters = false, .steps = kSteps});
    const DeviceArray<uint32_t> count(std::vector<uint32_t>(11, 0));
    EXPECT_EQ(finding_of(launch_of(right, 100, 1, parts.data(), count.data(), out.data())), "");
    EXPECT_EQ(out.get()[0], 4950);
    const DeviceArray<uint32_t> again(std::vector<uint32_t>(11, 0));
    expect_finding(finding_of(launch_of(wrong, 100, 1, parts.data(), again.data(), out.data())),
                   {"race: read of 4 bytes that another block writes"});
  }
  configure({});
}

}  // namespace
}  // namespace softgpu
