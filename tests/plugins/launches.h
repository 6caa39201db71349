// Which kernels the plugins of ops along the last dimension launch, and how: without a GPU, by
// recording what they ask for.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "harness.h"

namespace opdock_test {

// Row lengths that GPU kernels treat differently, at and around each limit.
std::vector<int64_t> launch_lengths();

// The launch covers rows of `length`: a kernel that the plugin declares, whole warps, no more
// threads than the kernel was compiled for, and room for every element in the kernels that keep a
// row in registers; no 16-byte loads where an argument is misaligned.
void expect_covers(const Launch& launch, const std::string& plugin, Type type, int64_t length,
                   int64_t rows, int64_t warp, bool misaligned);

// Calls run(type, length, warp, odd, &launches) for every `odd` below `cases`: it records one
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

}  // namespace opdock_test
