// The libraries that loading one file brings into a process, in the order of symbol lookup.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "link/linker.h"

namespace opdock {

// A graph is for one file and one thread.
class LinkGraph {
 public:
  LinkGraph(Linker* linker, std::shared_ptr<const Library> file, const std::string& path);

  // Walks the needed libraries breadth first, in the order in which the loader maps them. Appends a
  // problem for each that is missing or refused.
  void resolve(LinkFacts* facts);

  // Returns the library that is called `name`, in the graph or in the process; NULL: none.
  const LinkNode* find(const std::string& name) const;
  // Returns the library to which the loader binds `wanted`; NULL: none among those with known
  // symbols.
  const LinkNode* provider(const WantedSymbol& wanted) const;
  // The libraries that would be loaded, the file itself first.
  const std::vector<const LinkNode*>& fresh() const { return fresh_; }
  bool has(const Library* library) const;
  // True if the graph has a library whose symbols are unknown, on a described machine.
  bool has_unknown() const { return has_unknown_; }
  const ProcessModel& process() const { return linker_->process(); }
  const Files& files() const { return linker_->search().files(); }

 private:
  LinkNode* find_or_open(const std::string& name, const LinkNode& by, bool may_be_absent,
                         LinkFacts* facts);
  LinkNode* known_as(const std::string& name) const;
  LinkNode* known_with(const Library* library) const;
  LinkNode* add(FoundLibrary found, const std::string& name, const LinkNode& by);
  void enter(LinkNode* node);
  bool check(const LinkNode& node, const std::string& name, const LinkNode& by,
             LinkFacts* facts) const;

  Linker* linker_;
  std::deque<LinkNode> nodes_;  // those that would be loaded
  std::vector<LinkNode*> scope_;
  // The libraries that are searched for symbols: the process's global ones, then those of scope_.
  std::vector<std::pair<const LinkNode*, const Library*>> searched_;
  std::vector<const LinkNode*> fresh_;
  bool has_unknown_ = false;
};

// Returns whether this process can bind the symbol without loading any further library.
bool is_bound_here(const WantedSymbol& wanted);

}  // namespace opdock
