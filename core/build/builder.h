// Builds a source plugin with Meson and Ninja: once for its inputs, into the cache.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/reason.h"
#include "cache/cache.h"
#include "manifest/manifest.h"

namespace opdock {

struct BuildOptions {
  std::string cuda_archs;  // resolved already: "9.0a;10.0+PTX"; empty: no CUDA images
  std::string hip_archs;   // "gfx90a;gfx1030"; empty: none
  // What of cuda_archs stands for GPUs of this machine: "12.1". Where a compiler is older than such
  // a GPU, it makes PTX of the newest architecture that it knows.
  std::string gpu_archs;
  std::string arch_origin, hip_origin;  // where the lists come from, for messages: "--archs"
  // The result is wanted for GPUs of this machine: what their driver cannot run is not built.
  bool must_run_here = false;
  // Of a plugin with simd_sources: x86-64's level, 1 to 4, that it is built for alone, so that less
  // is compiled; 0: all, each processor's chosen at run time.
  int cpu_level = 0;
  bool debug = false;             // -O0 -g
  int jobs = 0;                   // 0: by cores and free memory
  double timeout_seconds = 1800;  // of the whole call: reading, waiting for others, building
  bool retry_failed = false;      // forget a remembered failure first
  bool trusted = false;           // somebody asked for this very folder: no trust check
};

struct BuildResult {
  std::shared_ptr<CacheEntry> entry;  // NULL: failed
  std::string plugin;                 // the shared object in it, absolute
  bool built = false;                 // by this call; false: it was in the cache
  std::string log_path;               // of the build, also of a failed one; may be empty
  // How the request differs from the last one of this plugin, as Cache::what_changed describes it.
  std::vector<std::string> changed;
  // Of the build by this call: versions that may not go together, PTX in place of an architecture.
  // They are in its log too.
  std::vector<Reason> warnings;
};

// What goes into the request: every file that the plugin is built from (build/sources.h has the
// rule) by content and relative name, flags, architectures, ABI, Opdock's version, headers,
// vocabulary and wrapper. Reads files, starts nothing. cache: remembers digests with the stamps of
// what was read, so that what looks as it did is not read again; NULL: everything is read.
// progress, reasons: of list_sources(), which may fail: then there is no request. Both may be NULL.
std::optional<CacheRequest> build_request(const Manifest& manifest, const BuildOptions& options,
                                          Cache* cache = nullptr, Progress* progress = nullptr,
                                          std::vector<Reason>* reasons = nullptr);

// Whether a plugin's meson.build names simd_sources, which cpu_level is for.
bool has_simd_sources(const Manifest& manifest);

// The variants in the cache, newest first, without any compiler: what `load` may try.
// (Cache::find over build_request.)

// Finds the tools, checks them (build/toolchain_check.h), takes the lock, builds in a folder of its
// own, checks the result (it has a note, the right name) and publishes. Children die with this
// process; a cancelled or failed build leaves nothing but its log. Without tools, a variant that
// another compiler made is taken. A failure of the source is remembered, and given again with
// build-remembered until an input changes. Who waited for a build that failed in a way that may
// pass (want of memory) builds in turn; after two such failures all who still wait fail with them
// (build-waited). progress and reasons as elsewhere; progress may be NULL.
// Reasons: stage "build", and the cache's. Under AT_SECURE nothing is built. Blocking; any thread;
// never throws.
BuildResult build_plugin(const Manifest& manifest, const BuildOptions& options, Cache* cache,
                         Progress* progress, std::vector<Reason>* reasons);

// What would keep build_plugin from starting on this machine, without building anything: tools
// that are missing, versions and architectures that they do not take. Starts compilers to ask them.
std::vector<Reason> check_build(const Manifest& manifest, const BuildOptions& options);

}  // namespace opdock
