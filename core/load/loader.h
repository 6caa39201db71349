// Loading: from a candidate with a usable verdict to a plugin whose functions may be called.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "discover/catalog.h"
#include "opdock/plugin.h"

namespace opdock {

// A plugin in this process. Never unloaded, never destroyed.
struct LoadedPlugin {
  std::shared_ptr<const Candidate> candidate;
  const opdock_plugin* descriptor = nullptr;
  void* handle = nullptr;           // dlopen's
  std::span<const uint8_t> images;  // the image table as mapped into this process; may be empty
};

// Loads the candidate, or returns what was loaded for the same file content before. Checks that the
// file is still the one that was checked, opens it RTLD_NOW | RTLD_LOCAL, calls the entry function
// and init(host), and compares the descriptor with the note. On failure returns NULL and appends
// reasons (stage "load" or file-changed); a failure is remembered for that file content,
// unless the loader refused the file for want of what may be there by now (Lacking).
// Thread-safe: two threads asking for one plugin load it once. May block. A constructor or init
// that comes back to its own plugin gets NULL (within-itself), and so does a child that was forked
// while another thread loaded it (left-by-fork).
const LoadedPlugin* load(const std::shared_ptr<const Candidate>& candidate, const opdock_host* host,
                         std::vector<Reason>* reasons);

}  // namespace opdock
