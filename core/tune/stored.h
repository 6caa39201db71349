// Measured choices in the user's cache: an entry for each build of a plugin on each kind of device.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cache/cache.h"
#include "cache/layout.h"
#include "call/tuning.h"

namespace opdock {

struct TunedResult {
  uint64_t question = 0;
  int32_t choice = 0;
  uint32_t count = 0;     // of the ways, when they were measured
  std::string situation;  // for people: "softmax 8192x8192 float32"
  double default_us = 0;  // the median time of a call in the plugin's own way, and
  double best_us = 0;     // in this one
};

struct TunedEntry {
  TuningScope scope;
  std::vector<TunedResult> results;  // by question
  int64_t created = 0;               // when it was last changed, in seconds since the epoch
  std::string path;
};

// What is stored for the scope; nothing if that is nothing. What is damaged is set aside, and a
// reason (a notice) says so.
std::vector<TunedResult> read_tuned(Cache* cache, const TuningScope& scope,
                                    std::vector<Reason>* reasons);
TunedChoices choices_of(const std::vector<TunedResult>& results);

// Adds the results to what is stored for the scope, in the place of those with the same question;
// one with a choice below 0 only removes those. *now: all that is stored then. False and a reason
// if it cannot be written.
bool store_tuned(Cache* cache, const TuningScope& scope, const std::vector<TunedResult>& results,
                 std::vector<TunedResult>* now, std::vector<Reason>* reasons);

// All that is stored in a cache's folder, and forgetting it: of one plugin, or, with an empty name,
// of all. Entries that cannot be read are passed over.
std::vector<TunedEntry> list_tuned(const cache::Layout& layout);
std::vector<TunedEntry> forget_tuned(const cache::Layout& layout, const std::string& plugin);

}  // namespace opdock
