// The libraries that one file brings into a process, in the order in which symbols are looked up.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "link/linker.h"

namespace opdock {

// For one file and one thread.
class LinkGraph {
 public:
  LinkGraph(Linker* linker, std::shared_ptr<const Library> file, const std::string& path);

  // Walks the needs, breadth first, as the loader maps them. Appends what is missing or refused.
  void resolve(LinkFacts* facts);

  // The library that is called `name`, in the graph or in the process; NULL: none.
  const LinkNode* find(const std::string& name) const;
  // Which library the loader binds `wanted` to; NULL: none whose symbols are known.
  const LinkNode* provider(const WantedSymbol& wanted) const;
  // Those that would be loaded, the file itself first.
  const std::vector<const LinkNode*>& fresh() const { return fresh_; }
  bool has(const Library* library) const;
  // True if a library is there whose symbols nobody knows: a described machine's.
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
  std::deque<LinkNode> nodes_;  // fresh ones
  std::vector<LinkNode*> scope_;
  // What is searched for symbols, read: the process's global libraries, then the scope's.
  std::vector<std::pair<const LinkNode*, const Library*>> searched_;
  std::vector<const LinkNode*> fresh_;
  bool has_unknown_ = false;
};

// Whether this process binds the symbol without any further library.
bool is_bound_here(const WantedSymbol& wanted);

}  // namespace opdock
