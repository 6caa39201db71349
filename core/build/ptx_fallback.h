// Records for which GPUs of this machine a build made PTX because no compiler knew them (arch-ptx),
// and finds out whether a compiler that was installed later knows them: then the plugin is built
// again. If no PTX stands in, or no compiler was installed, no program is started and only a few
// files are looked at.
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

// The entry's file that records how many architectures got PTX and which compilers did not know
// them. Only entries with such PTX have it.
constexpr char kPtxFallbackFile[] = "stand-in.json";

bool has_ptx_fallback(const CacheEntry& entry);

// Returns that file's contents; empty if no PTX stands in. warnings: the build's, from
// check_toolchain().
std::string ptx_fallback_text(const BuildTools& tools, const Languages& languages,
                              const ToolchainFacts& facts, const std::vector<Reason>& warnings);

// Returns, for people, which newer compiler can give the entry's GPUs more than the entry has:
// "toolkit: found nvcc 14.0, …, was nvcc 13.0, …"; nullopt: none. Compilers are known by their
// files: they are started and asked only if one of them is neither among those that made the entry
// nor among those asked before (which a memo in the cache records). may_start: whether they may be
// started; if not, the text says only that there are others. Returns nullopt under AT_SECURE. May
// throw for lack of memory; any thread.
std::optional<std::string> newer_compiler(const Manifest& manifest, const BuildOptions& options,
                                          const CacheEntry& entry, Cache* cache, bool may_start);

// Records that the compilers here brought nothing, as if they had been asked: the entry is used
// until other compilers appear.
void accept_ptx_fallback(const Manifest& manifest, const BuildOptions& options,
                         const CacheEntry& entry, Cache* cache);

}  // namespace opdock
