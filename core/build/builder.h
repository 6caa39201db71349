// Builds a source plugin with Meson and Ninja into the cache, once for each set of inputs.
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
  // The part of cuda_archs that stands for GPUs of this machine, such as "12.1". A compiler that is
  // too old for such a GPU makes PTX of the newest architecture that it knows.
  std::string gpu_archs;
  std::string arch_origin, hip_origin;  // where the lists come from, for messages: "--archs"
  // The result must run on GPUs of this machine: a build that their driver could not run is
  // refused.
  bool must_run_here = false;
  // For a plugin with simd_sources: the only level of x86-64, 1 to 4, that it is built for, so that
  // less is compiled; 0: all levels, and each processor's is chosen at run time.
  int cpu_level = 0;
  bool debug = false;             // -O0 -g
  int jobs = 0;                   // 0: by cores and free memory
  double timeout_seconds = 1800;  // for the whole call: reading, waiting for others, building
  bool retry_failed = false;      // forget a remembered failure first
  bool trusted = false;           // the user named exactly this folder: no trust check
};

struct BuildResult {
  std::shared_ptr<CacheEntry> entry;  // NULL: failed
  std::string plugin;                 // absolute path of the shared object in the entry
  bool built = false;                 // built by this call; false: found in the cache
  std::string log_path;               // the build's log, also of a failed one; may be empty
  // How the request differs from the last one of this plugin, as Cache::what_changed describes it.
  std::vector<std::string> changed;
  // Warnings of a build by this call: versions that may not go together, PTX in place of an
  // architecture. The build's log has them too.
  std::vector<Reason> warnings;
};

// Returns the request for a build: every file that the plugin is built from (build/sources.h has
// the rule) by content and relative name, flags, architectures, ABI, Opdock's version, headers,
// vocabulary and wrapper. Reads files, starts nothing. Returns nullopt if list_sources() fails;
// progress and reasons are passed to it, and both may be NULL. cache: remembers digests with the
// stamps of the files that were read, so that files that look unchanged are not read again; NULL:
// everything is read.
std::optional<CacheRequest> build_request(const Manifest& manifest, const BuildOptions& options,
                                          Cache* cache = nullptr, Progress* progress = nullptr,
                                          std::vector<Reason>* reasons = nullptr);

// Returns a digest of Opdock's public headers, which is computed once. cache: as above.
std::string headers_digest(Cache* cache);

// Returns whether code of the plugin is compiled once per x86-64 level, so that cpu_level applies
// to it: its meson.build names simd_sources, or an op is a formula with code for CPUs.
bool has_simd_code(const Manifest& manifest);

// Cache::find() with build_request() gives the variants in the cache, newest first, without any
// compiler: those that `load` may try.

// Finds the tools, checks them (build/toolchain_check.h), takes the lock, builds in a private
// folder, checks the result (it has a note with the right name) and publishes it. Child processes
// end with this process; a cancelled or failed build leaves only its log. Without tools, a variant
// that another compiler made is used. A failure that the source caused is remembered and reported
// again, with build-remembered, until an input changes. When a build fails in a way that may pass
// (lack of memory), a process that waited for it builds next; after two such failures all processes
// that still wait fail with them (build-waited). progress and reasons as elsewhere; progress may be
// NULL.
// Reasons: stage "build", and the cache's. Under AT_SECURE nothing is built. Blocking; any thread;
// never throws.
BuildResult build_plugin(const Manifest& manifest, const BuildOptions& options, Cache* cache,
                         Progress* progress, std::vector<Reason>* reasons);

// Returns what would keep build_plugin from starting on this machine, without building anything:
// missing tools, and versions and architectures that the tools do not accept. Starts compilers to
// ask them.
std::vector<Reason> check_build(const Manifest& manifest, const BuildOptions& options);

}  // namespace opdock
