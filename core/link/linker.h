// What the dynamic loader would do with a file in one process, found out without loading anything.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "link/node.h"
#include "link/process.h"
#include "note/link_facts.h"

namespace opdock {

class LinkGraph;

// For one scan: it remembers what lies where, and what the process has loaded. Thread-safe.
class Linker {
 public:
  // files: must outlive it. elsewhere: libraries that lie where the loader does not look but that
  // something may load first (other packages of an environment): paths by name.
  Linker(ProcessModel process, const Files* files,
         std::map<std::string, std::string> elsewhere = {});

  // Resolves the file's whole dependency graph and every symbol and version that is bound on the
  // way. Nothing for a file that is no library of the process's machine.
  LinkFacts link(const std::shared_ptr<const Library>& file, const std::string& path);

  const ProcessModel& process() const { return process_; }
  LibrarySearch& search() { return search_; }
  // What the process has under that name; NULL: nothing.
  LinkNode* loaded_as(const std::string& name) const;
  // Those whose symbols serve every library, in the order in which they are asked.
  const std::vector<const LinkNode*>& globals() const { return globals_; }
  const std::string* elsewhere(const std::string& name) const;

 private:
  bool is_known_complete(const LinkNode& node, const LinkGraph& graph);
  std::vector<uint32_t> relocated_of(const LinkNode& node);
  void check_symbols(const LinkGraph& graph, const LinkNode& node, LinkFacts* facts);

  const ProcessModel process_;
  const std::map<std::string, std::string> elsewhere_;
  LibrarySearch search_;
  std::deque<LinkNode> loaded_;
  std::unordered_map<std::string, LinkNode*> by_name_;
  std::vector<const LinkNode*> globals_;
  Mutex mutex_;  // of what follows
  // Libraries whose symbols were all found, and where. Kept, so that no other gets their address.
  using LibraryPtr = std::shared_ptr<const Library>;
  std::map<LibraryPtr, std::vector<LibraryPtr>> complete_;
  // Of libraries that lack symbols, the undefined ones that relocations refer to.
  std::map<LibraryPtr, std::vector<uint32_t>> relocated_;
};

}  // namespace opdock
