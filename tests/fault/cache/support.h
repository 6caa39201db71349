// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "cache/collect.h"
#include "cache_folder.h"
#include "faults.h"

namespace opdock::testing {

// What a caller does: look, wait, look again, make and publish. Returns what was found or made.
// *made counts up if it came to making.
std::shared_ptr<CacheEntry> ask(
    Cache* cache, int* made, std::vector<Reason>* reasons,
    const std::function<void()>& make = [] {});

// The cache in `folder` is good for use: nothing is left in its temporary folder, what was
// published before is there, and the next attempt publishes and finds both kinds.
void expect_next_attempt_right(const CacheFolder& folder);

// Publishes an entry that no fault may touch; expect_next_attempt_right looks for it.
void publish_neighbour(const CacheFolder& folder);

// Sets the modification times of a file, or of all in a tree, to that many seconds ago.
void make_older(const std::string& path, int64_t seconds);
cache::Collected collect_now(const CacheFolder& folder, uint64_t max_bytes);
// The bytes of an entry, with the head of a format of the future.
std::string newer_format(std::string bytes);

// Runs `work` in a child process and waits: its exit status, or minus the signal that ended it.
int in_child(const std::function<int()>& work);
pid_t start_child(const std::function<int()>& work);
int wait_for(pid_t child);

}  // namespace opdock::testing
