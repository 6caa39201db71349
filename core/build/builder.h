// Builds a source plugin with Meson and Ninja: once for its inputs, into the cache.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/reason.h"
#include "cache/cache.h"
#include "manifest/manifest.h"

namespace opdock {

struct BuildOptions {
  std::string cuda_archs;          // resolved already: "9.0a;10.0+PTX"; empty: no CUDA images
  std::string hip_archs;           // "gfx90a;gfx1030"; empty: none
  bool debug = false;              // -O0 -g
  int jobs = 0;                    // 0: by cores and free memory
  double timeout_seconds = 1800;   // of the whole build
  bool retry_failed = false;       // forget a remembered failure first
};

struct BuildResult {
  std::shared_ptr<CacheEntry> entry;  // NULL: failed
  std::string plugin;                 // the shared object in it, absolute
  bool built = false;                 // by this call; false: it was in the cache
  std::string log_path;               // of the build, also of a failed one; may be empty
};

// What goes into the request: every file of the folder by content and relative name, flags,
// architectures, ABI, Opdock's version, headers, vocabulary and wrapper. Reads files, starts nothing.
CacheRequest build_request(const Manifest& manifest, const BuildOptions& options);

// The variants in the cache, newest first, without any compiler: what `load` may try.
// (Cache::find over build_request.)

// Finds the tools, takes the lock, builds in a folder of its own, checks the result (it has a note,
// the right name) and publishes. Children die with this process; a cancelled or failed build leaves
// nothing but its log. Reasons: stage "build". Blocking; any thread.
BuildResult build_plugin(const Manifest& manifest, const BuildOptions& options, Cache* cache,
                         Progress* progress, std::vector<Reason>* reasons);

}  // namespace opdock
