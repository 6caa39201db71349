// Keeps measured choices in the user's cache, one entry per build of a plugin and kind of device.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cache/cache.h"
#include "cache/layout.h"
#include "tune/tuning.h"

namespace opdock {

struct TunedResult {
  uint64_t question = 0;
  int32_t choice = 0;
  uint32_t count = 0;     // number of choices when they were measured
  std::string situation;  // for people: "softmax 8192x8192 float32"
  double default_us = 0;  // median time of a call with the plugin's own choice
  double best_us = 0;     // median time of a call with this choice
};

struct TunedEntry {
  TuningScope scope;
  std::vector<TunedResult> results;  // ordered by question
  int64_t created = 0;               // when it was last changed, in seconds since the epoch
  std::string path;
};

// Returns the results stored for the scope; empty if there are none. A damaged entry is set aside,
// and a reason (a notice) says so.
std::vector<TunedResult> read_tuned(Cache* cache, const TuningScope& scope,
                                    std::vector<Reason>* reasons);
TunedChoices choices_of(const std::vector<TunedResult>& results);

// Adds the results to those stored for the scope, replacing those with the same question. A result
// with a choice below 0 only removes the stored one. *now: all results that are stored then.
// Returns false and a reason if the entry cannot be written.
bool store_tuned(Cache* cache, const TuningScope& scope, const std::vector<TunedResult>& results,
                 std::vector<TunedResult>* now, std::vector<Reason>* reasons);

// Lists everything stored in a cache's folder; forgets the results of one plugin or, with an empty
// name, of all, and returns them. Entries that cannot be read are skipped.
std::vector<TunedEntry> list_tuned(const cache::Layout& layout);
std::vector<TunedEntry> forget_tuned(const cache::Layout& layout, const std::string& plugin);

}  // namespace opdock
