// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "cache/evict.h"
#include "cache_folder.h"
#include "faults.h"

namespace opdock::testing {

// Does what a caller of the cache does: look, lock, look again, make and publish. Returns the entry
// that was found or made, and increments *made if it was made.
std::shared_ptr<CacheEntry> ask(
    Cache* cache, int* made, std::vector<Reason>* reasons,
    const std::function<void()>& make = [] {});

// Expects the cache in `folder` to be usable: what was published before is there, and the next
// attempt publishes and finds both kinds of entries.
void expect_cache_usable(const CacheFolder& folder);

// Publishes an entry that no fault may touch; expect_cache_usable looks for it.
void publish_unrelated_entry(const CacheFolder& folder);

// Sets the modification time of a file, or of everything in a folder, to this many seconds ago.
void make_older(const std::string& path, int64_t seconds);
cache::Evicted evict_now(const CacheFolder& folder, uint64_t max_bytes);
// Returns an entry's bytes with the head of a future format.
std::string newer_format(std::string bytes);

// Runs `work` in a child process and waits. Returns its exit status, or the negative number of the
// signal that ended it.
int in_child(const std::function<int()>& work);
pid_t start_child(const std::function<int()>& work);
int wait_for(pid_t child);

}  // namespace opdock::testing
