// Checks which kernels the row-op plugins (ops along the last dimension) launch and how. Needs no
// GPU: it records the launches that they request.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "harness.h"

namespace opdock_test {

// Returns row lengths at and around each limit where GPU kernels change strategy.
std::vector<int64_t> launch_lengths();

// Expects the launch to cover rows of `length`: it uses a kernel that the plugin declares, whole
// warps, no more threads than the kernel was compiled for, and enough room for every element in
// kernels that keep a row in registers; it uses no 16-byte loads if an argument is misaligned.
// most_lanes: the most lanes for a row that shares its block with other rows.
void expect_covers(const Launch& launch, const std::string& plugin, Type type, int64_t length,
                   int64_t rows, int64_t warp, bool misaligned, int64_t most_lanes = 32);

// Whether both launch the same kernel with the same block, grid, cluster and flags.
bool is_same_launch(const Launch& a, const Launch& b);

// Calls run(type, length, warp, odd, &launches) for every `odd` below `cases`. It must record one
// launch for five rows, with argument number `odd` misaligned (0: none).
template <class Run>
void expect_every_launch_covers(const std::string& plugin, int cases, const Run& run) {
  for (Type type : {Type::kFloat32, Type::kFloat16, Type::kBFloat16})
    for (int64_t length : launch_lengths())
      for (uint32_t warp : {32u, 64u})
        for (int odd = 0; odd < cases; ++odd) {
          std::vector<Launch> launches;
          const Result result = run(type, length, warp, odd, &launches);
          ASSERT_EQ(result.status, OPDOCK_OK) << result.text;
          ASSERT_EQ(launches.size(), 1u);
          SCOPED_TRACE("misaligned argument " + std::to_string(odd));
          expect_covers(launches[0], plugin, type, length, 5, warp, odd != 0);
        }
}

// Expects every launch variant of an op (docs/guide/tuning.md) to cover its rows. All rows that ask
// the same tuning question must allow the same variants, so that one measurement serves all of
// them, and the op's own launch must be among the variants.
template <class Run>
void expect_every_way_covers(const std::string& plugin, int cases, const Run& run) {
  // Keyed by the warp size too, because measurements of one device are not used on others.
  std::map<std::pair<uint32_t, uint64_t>, std::set<int32_t>> possible;
  size_t most = 0;
  for (Type type : {Type::kFloat32, Type::kFloat16, Type::kBFloat16})
    for (int64_t length : launch_lengths())
      for (uint32_t warp : {32u, 64u})
        for (int odd = 0; odd < cases; ++odd) {
          SCOPED_TRACE(name_of(type) + " rows of " + std::to_string(length) +
                       ", misaligned argument " + std::to_string(odd));
          std::vector<Launch> own;
          Answer::Questions asked;
          {
            Answer none(-1);
            ASSERT_EQ(run(type, length, warp, odd, &own).status, OPDOCK_OK);
            asked = none.asked;
          }
          ASSERT_EQ(asked.size(), 1u);
          std::set<int32_t> ways;
          bool is_own = false;
          for (uint32_t way = 0; way < asked[0].second; ++way) {
            std::vector<Launch> launches;
            Answer answer(static_cast<int32_t>(way));
            const Result result = run(type, length, warp, odd, &launches);
            EXPECT_EQ(answer.asked, asked);
            if (result.status == OPDOCK_UNSUPPORTED) continue;
            ASSERT_EQ(result.status, OPDOCK_OK) << result.text;
            ASSERT_EQ(launches.size(), 1u);
            expect_covers(launches[0], plugin, type, length, 5, warp, odd != 0, warp);
            ways.insert(answer.way);
            is_own = is_own || is_same_launch(launches[0], own[0]);
          }
          EXPECT_TRUE(is_own);
          const auto [known, is_new] = possible.try_emplace({warp, asked[0].first}, ways);
          EXPECT_EQ(known->second, ways) << std::hex << asked[0].first;
          most = std::max(most, ways.size());
        }
  EXPECT_GE(most, 4u) << "rows that leave a choice";
}

}  // namespace opdock_test
