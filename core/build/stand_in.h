// What a build left to PTX because no compiler knew a GPU of this machine (arch-ptx), and whether a
// compiler that has come since does: then the plugin is built anew. Where nothing stood in, and
// where no compiler has come, nothing is started and a few files are looked at.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/reason.h"
#include "build/toolchain_check.h"
#include "build/tools.h"
#include "cache/cache.h"

namespace opdock {

// The entry's file that says: which GPUs, and which compilers did not know them. Only entries that
// have such PTX have it.
constexpr char kStandInFile[] = "stand-in.json";

bool has_stand_in(const CacheEntry& entry);

// What that file says; empty if no PTX stood in. warnings: the build's, from check_toolchain().
std::string stand_in_text(const BuildTools& tools, const Languages& languages,
                          const ToolchainFacts& facts, const std::vector<Reason>& warnings);

// What has come that gives the entry's GPUs more than it has, for people: "toolkit: found nvcc
// 14.0, …, was nvcc 13.0, …". nullopt: nothing. Compilers are known by their files: only if
// one is not among those that made the entry (or that were asked before: a memo in the cache says
// so) they are started and asked. may_start: whether that may be; if not, the text says only that
// there are others. Never under AT_SECURE. May throw for lack of memory; any thread.
std::optional<std::string> newer_compiler(const Manifest& manifest, const BuildOptions& options,
                                          const CacheEntry& entry, Cache* cache, bool may_start);

// As if the compilers here had been asked and brought nothing: the entry is used until others come.
void accept_stand_in(const Manifest& manifest, const BuildOptions& options, const CacheEntry& entry,
                     Cache* cache);

}  // namespace opdock
