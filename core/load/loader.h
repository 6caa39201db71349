// Loads a candidate with a usable verdict, as a plugin whose functions may be called.
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

// A plugin in this process. It is never unloaded and never destroyed.
struct LoadedPlugin {
  std::shared_ptr<const Candidate> candidate;
  const opdock_plugin* descriptor = nullptr;
  void* handle = nullptr;           // dlopen's handle
  std::span<const uint8_t> images;  // the image table as mapped into this process; may be empty
};

// Loads the candidate, or returns the plugin that was loaded for the same file content before.
// Checks that the file is still the one that was judged, opens it with RTLD_NOW | RTLD_LOCAL,
// compares what is mapped with the note, calls the entry function, compares the descriptor with the
// note, and calls init(host).
// On failure returns NULL and appends reasons (stage "load", or file-changed). A failure is
// remembered for that file content, except file-changed, and except when the loader refused the
// file because it lacked something that may be available now (MissingDependency).
// Thread-safe: if two threads ask for one plugin, it is loaded once. May block. A constructor or
// init that asks for its own plugin gets NULL (within-itself), and so does a child that was forked
// while another thread loaded the plugin (left-by-fork).
const LoadedPlugin* load(const std::shared_ptr<const Candidate>& candidate, const opdock_host* host,
                         std::vector<Reason>* reasons);

}  // namespace opdock
