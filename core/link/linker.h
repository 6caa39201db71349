// Determines what the dynamic loader would do with a file in one process, without loading anything.
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

// Use one Linker per scan: it caches the locations of files and the libraries that the process has
// loaded. Thread-safe.
class Linker {
 public:
  // files: must outlive this object. elsewhere: paths, by name, of libraries in places that the
  // loader does not search, but which something may load first (other packages of an environment).
  Linker(ProcessModel process, const Files* files,
         std::map<std::string, std::string> elsewhere = {});

  // Resolves the file's whole dependency graph, and every symbol and version that is bound on the
  // way. Returns empty facts for a file that is not a library of the process's machine.
  LinkFacts link(const std::shared_ptr<const Library>& file, const std::string& path);

  const ProcessModel& process() const { return process_; }
  LibrarySearch& search() { return search_; }
  // Returns the library that the process has under that name; NULL: none.
  LinkNode* loaded_as(const std::string& name) const;
  // The libraries whose symbols all libraries can use, in lookup order.
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
  Mutex mutex_;  // protects the following members
  // Libraries whose symbols were all found, and the libraries that define them. The pointers keep
  // both alive, so that no other library gets the same address.
  using LibraryPtr = std::shared_ptr<const Library>;
  std::map<LibraryPtr, std::vector<LibraryPtr>> complete_;
  // For libraries that lack symbols: the undefined symbols that relocations refer to.
  std::map<LibraryPtr, std::vector<uint32_t>> relocated_;
};

}  // namespace opdock
