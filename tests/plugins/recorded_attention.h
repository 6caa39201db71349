// A stand-in for the host's extension opdock.attention/1, which records what it is asked for.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "opdock/attention.h"

namespace opdock_test {

// While one lives, the host has the extension; at most one at a time.
struct RecordedAttention {
  RecordedAttention();
  ~RecordedAttention();
  RecordedAttention(const RecordedAttention&) = delete;
  RecordedAttention& operator=(const RecordedAttention&) = delete;

  bool plans = true, runs = true;      // the answers of plan and run
  uint64_t workspace_bytes = 1 << 20;  // what plan answers and run requires
  int planned = 0;
  std::vector<opdock_attention> ran;
};

// Returns the table, or NULL if the host has none.
const opdock_attention_table* recorded_attention();

}  // namespace opdock_test
