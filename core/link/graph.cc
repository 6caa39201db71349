// SPDX-License-Identifier: Apache-2.0
#include "link/graph.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>

namespace opdock {
namespace {

constexpr const char* kNotForOpening =
    "marked as not to be opened while a program runs (DF_1_NOOPEN)";
constexpr size_t kMaxLibraries = 4096;

}  // namespace

bool is_bound_here(const WantedSymbol& wanted) {
  const NoFork no_fork;
  const std::string name(wanted.name), version(wanted.version);
  ::dlerror();
  void* const found = version.empty() ? ::dlsym(RTLD_DEFAULT, name.c_str())
                                      : ::dlvsym(RTLD_DEFAULT, name.c_str(), version.c_str());
  return found != nullptr || ::dlerror() == nullptr;
}

LinkGraph::LinkGraph(Linker* linker, std::shared_ptr<const Library> file, const std::string& path)
    : linker_(linker) {
  LinkNode& root = nodes_.emplace_back();
  root.path = path;
  root.is_root = true;
  root.names = {path};
  if (!file->dynamic.soname.empty()) root.names.push_back(file->dynamic.soname);
  root.needer = Needer(path, file->dynamic, nullptr);
  root.library = std::move(file);
  enter(&root);
}

void LinkGraph::enter(LinkNode* node) {
  if (std::find(scope_.begin(), scope_.end(), node) != scope_.end()) return;
  scope_.push_back(node);
  if (!node->is_loaded) fresh_.push_back(node);
}

LinkNode* LinkGraph::known_as(const std::string& name) const {
  for (const LinkNode& node : nodes_) {
    if (node.is_called(name)) return const_cast<LinkNode*>(&node);
  }
  return linker_->loaded_as(name);
}

const LinkNode* LinkGraph::find(const std::string& name) const {
  return known_as(name);
}

LinkNode* LinkGraph::known_with(const Library* library) const {
  for (const LinkNode& node : nodes_) {
    if (node.library.get() == library) return const_cast<LinkNode*>(&node);
  }
  LinkNode* const loaded = linker_->loaded_as(library->dynamic.soname);
  if (loaded != nullptr && loaded->read(files()) == library) return loaded;
  return nullptr;
}

LinkNode* LinkGraph::add(FoundLibrary found, const std::string& name, const LinkNode& by) {
  LinkNode& node = nodes_.emplace_back();
  const Dynamic& dynamic = found.library->dynamic;
  node.path = found.path;
  node.names = {name, found.path};
  if (!dynamic.soname.empty()) node.names.push_back(dynamic.soname);
  node.needer = Needer(found.path, dynamic, &by.needer);
  node.library = std::move(found.library);
  return &node;
}

// Returns false and adds a problem if the loader refuses the library that was found for `name`.
bool LinkGraph::check(const LinkNode& node, const std::string& name, const LinkNode& by,
                      LinkFacts* facts) const {
  const Library& library = *node.library;
  std::string detail;
  if (library.refusal) {
    detail = library.refusal->found;
  } else if (library.dynamic.no_open) {
    detail = kNotForOpening;
  } else {
    return true;
  }
  facts->problems.push_back({LinkProblem::Kind::kRefused,
                             by.is_root ? "" : by.path,
                             name,
                             {},
                             {},
                             node.path,
                             std::move(detail),
                             0});
  return false;
}

LinkNode* LinkGraph::find_or_open(const std::string& name, const LinkNode& by, bool may_be_absent,
                                  LinkFacts* facts) {
  if (LinkNode* known = known_as(name)) return known->is_refused ? nullptr : known;
  std::optional<FoundLibrary> found = linker_->search().find(name, by.needer);
  const std::string* const elsewhere = found ? nullptr : linker_->elsewhere(name);
  if (!found && process().is_this_process) {
    if (LinkNode* alias = linker_->loaded_as(loaded_under(name).value_or(""))) return alias;
  }
  if (!found && elsewhere != nullptr) {
    if (auto library = LibraryPool::shared().get(*elsewhere, files())) {
      found = FoundLibrary{*elsewhere, std::move(library)};
    }
  }
  if (!found && (by.is_loaded || may_be_absent)) return nullptr;
  if (!found || elsewhere != nullptr) {
    LinkProblem::Kind kind = LinkProblem::Kind::kMissing;
    const bool is_open = process().is_described || process().has_absent_requirements;
    if (is_open) kind = LinkProblem::Kind::kUnknown;
    if (elsewhere != nullptr && found) kind = LinkProblem::Kind::kElsewhere;
    facts->problems.push_back({kind,
                               by.is_root ? "" : by.path,
                               name,
                               {},
                               {},
                               found ? found->path : std::string(),
                               {},
                               0});
    if (is_open && !found) has_unknown_ = true;
    if (!found) return nullptr;
  }
  if (LinkNode* known = known_with(found->library.get())) {
    if (!known->is_loaded) known->names.push_back(name);
    return known->is_refused ? nullptr : known;
  }
  LinkNode* const node = add(*std::move(found), name, by);
  LinkFacts ignored;  // an auxiliary library may also be damaged
  node->is_refused = !check(*node, name, by, may_be_absent ? &ignored : facts);
  return node->is_refused ? nullptr : node;
}

void LinkGraph::resolve(LinkFacts* facts) {
  const LinkNode& root = nodes_.front();
  if (root.library->dynamic.no_open && !root.library->refusal) {
    facts->problems.push_back(
        {LinkProblem::Kind::kRefused, {}, {}, {}, {}, root.path, kNotForOpening, 0});
  }
  for (size_t i = 0; i < scope_.size() && i < kMaxLibraries; ++i) {
    LinkNode& node = *scope_[i];
    const Library* const library = node.read(files());
    if (library == nullptr) {
      has_unknown_ = has_unknown_ || node.is_assumed;
      continue;
    }
    const auto need = [&](const std::vector<std::string>& names, bool may_be_absent) {
      for (const std::string& name : names) {
        if (name.empty()) continue;  // the loader takes an empty name for the program
        if (LinkNode* found = find_or_open(name, node, may_be_absent, facts)) enter(found);
      }
    };
    need(library->dynamic.filters, false);
    need(library->dynamic.auxiliaries, true);
    need(library->dynamic.needed, false);
  }
  const auto search = [&](const LinkNode* node) {
    if (const Library* library = node->read(files())) searched_.emplace_back(node, library);
  };
  for (const LinkNode* node : linker_->globals()) search(node);
  for (const LinkNode* node : scope_) search(node);
}

const LinkNode* LinkGraph::provider(const WantedSymbol& wanted) const {
  const uint32_t hash = gnu_hash(wanted.name);
  for (const auto& [node, library] : searched_) {
    if (library->symbols.defines(wanted, hash)) return node;
  }
  return nullptr;
}

bool LinkGraph::has(const Library* library) const {
  return std::any_of(searched_.begin(), searched_.end(),
                     [&](const auto& searched) { return searched.second == library; });
}

}  // namespace opdock
