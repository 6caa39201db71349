// SPDX-License-Identifier: Apache-2.0
#include "link/linker.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string_view>

#include "link/graph.h"

namespace opdock {
namespace {

// The limit of missing symbols that are reported for one dependency.
constexpr size_t kMaxSymbols = 100;

uint64_t round_up(uint64_t value, uint64_t alignment) {
  return alignment == 0 ? value : (value + alignment - 1) / alignment * alignment;
}

bool has_kind(const LinkFacts& facts, LinkProblem::Kind kind) {
  return std::any_of(facts.problems.begin(), facts.problems.end(),
                     [&](const LinkProblem& problem) { return problem.kind == kind; });
}

std::string owner(const LinkNode& node) {
  return node.is_root ? std::string() : node.path;
}

// Returns "GLIBC_2.36" for "GLIBC_2.99": the newest version with the same prefix that the library
// defines.
std::string newest_like(const std::string& wanted, const Library& library) {
  const std::string prefix = wanted.substr(0, wanted.rfind('_') + 1);
  std::string newest;
  Version best;
  for (const VersionDefinition& own : library.symbols.definitions()) {
    if (prefix.empty() || !own.name.starts_with(prefix)) continue;
    const std::optional<Version> version = Version::parse(own.name.substr(prefix.size()));
    if (!version || (!newest.empty() && *version < best)) continue;
    newest = own.name;
    best = *version;
  }
  return newest;
}

// Returns whether a described machine's libraries have this version; only their newest versions are
// known.
bool assumed_has(std::string wanted, const ProcessModel& process) {
  // glibc's marks have names instead of numbers. The versions that introduced them are from glibc's
  // release notes.
  if (wanted == "GLIBC_ABI_DT_RELR") wanted = "GLIBC_2.36";
  if (wanted == "GLIBC_ABI_GNU2_TLS") wanted = "GLIBC_2.42";
  const size_t underscore = wanted.rfind('_');
  if (underscore == wanted.npos) return true;
  const auto known = process.assumed_versions.find(wanted.substr(0, underscore));
  const std::optional<Version> version = Version::parse(wanted.substr(underscore + 1));
  return known == process.assumed_versions.end() || !version || *version <= known->second;
}

bool is_needed(const std::string& name, const LinkNode& node) {
  const std::vector<std::string>& needed = node.library->dynamic.needed;
  return std::find(needed.begin(), needed.end(), name) != needed.end();
}

void check_versions(const LinkGraph& graph, const LinkNode& node, LinkFacts* facts) {
  for (const SymbolVersion& need : node.library->dynamic.versions) {
    const LinkNode* const provider = graph.find(need.library);
    LinkProblem problem{LinkProblem::Kind::kVersion,
                        owner(node),
                        need.version,
                        {},
                        need.library,
                        provider == nullptr ? "" : provider->path,
                        {},
                        0};
    if (provider == nullptr) {
      // The loader assumes that such a library is also needed (DT_NEEDED), and fails if it is not.
      if (is_needed(need.library, node)) continue;  // it is missing, which has been reported
      problem.library += ", which is not needed,";
      facts->problems.push_back(std::move(problem));
      continue;
    }
    if (need.weak) continue;
    const Library* const library = provider->read(graph.files());
    if (library == nullptr) {
      if (assumed_has(need.version, graph.process())) continue;
    } else {
      if (library->refusal && !provider->is_loaded) continue;
      if (!library->symbols.has_definitions()) continue;  // satisfies every required version
      if (library->symbols.defines_version(need.version)) continue;
      problem.detail = newest_like(need.version, *library);
    }
    facts->problems.push_back(std::move(problem));
  }
}

// glibc refuses relative relocations (DT_RELR) in a file that does not require the version that
// marks them.
void check_mark(const LinkGraph& graph, const LinkNode& node, LinkFacts* facts) {
  constexpr std::string_view kMark = "GLIBC_ABI_DT_RELR";
  const Dynamic& dynamic = node.library->dynamic;
  if (!dynamic.relative) return;
  const SymbolVersion* libc = nullptr;
  for (const SymbolVersion& need : dynamic.versions) {
    if (!need.library.starts_with("libc.so")) continue;
    if (need.version == kMark) return;
    libc = &need;
  }
  const LinkNode* const provider = libc == nullptr ? nullptr : graph.find(libc->library);
  const Library* const library = provider == nullptr ? nullptr : provider->read(graph.files());
  if (library == nullptr || !library->symbols.defines_version(kMark)) return;
  facts->problems.push_back({LinkProblem::Kind::kUnmarked, owner(node), {}, {}, {}, {}, {}, 0});
}

void check_tls(const LinkGraph& graph, LinkFacts* facts) {
  std::set<const LinkNode*> counted;
  for (const LinkNode* node : graph.fresh()) {
    if (node->library->fixes_own_tls) counted.insert(node);
    for (const uint32_t index : node->library->fixes_tls_of) {
      const LinkNode* const provider = graph.provider(*node->library->symbols.wanted_at(index));
      if (provider != nullptr && !provider->is_loaded) counted.insert(provider);
    }
  }
  for (const LinkNode* node : counted) {
    if (node->library->tls_size == 0) continue;
    facts->tls_align = std::max(facts->tls_align, node->library->tls_align);
    facts->tls_wanted += round_up(node->library->tls_size, node->library->tls_align);
  }
  facts->tls_left = graph.process().tls_left;
  facts->tls_most_align = graph.process().tls_align;
}

// glibc fails if the library of which a version is required has no version tables.
bool lacks_versions(const LinkNode& provider, const WantedSymbol& wanted, const Files& files) {
  const Library* const library = provider.read(files);
  return !library->symbols.has_versions() && provider.is_called(std::string(wanted.library));
}

// Returns those of the symbols that the library itself does not provide to which a relocation
// refers, sorted. Returns all of them if the file cannot be read.
std::vector<uint32_t> relocated_in(const LinkNode& node, const Files& files) {
  std::vector<uint32_t> all;
  node.library->symbols.for_each_wanted(
      [&](const WantedSymbol& wanted) { all.push_back(wanted.index); });
  for (const WantedSymbol& own : node.library->symbols.unreachable()) all.push_back(own.index);
  const std::optional<OpenFile> file = files.open(node.path);
  if (!file) return all;
  FileReader reader(file->fd.get(), file->size);
  std::vector<Reason> ignored;
  Defects defects(&ignored);
  ElfFile elf{&reader, &defects, {}, {}};
  bool is_elf = false;
  if (!read_headers(&elf, &is_elf)) return all;
  return relocated_symbols(elf, node.library->dynamic, all);
}

}  // namespace

Linker::Linker(ProcessModel process, const Files* files,
               std::map<std::string, std::string> elsewhere)
    : process_(std::move(process)),
      elsewhere_(std::move(elsewhere)),
      search_(process_.places, files) {
  for (const LoadedLibrary& loaded : process_.loaded) {
    LinkNode& node = loaded_.emplace_back();
    node.path = loaded.path;
    node.is_loaded = true;
    node.is_global = loaded.is_global;
    node.is_assumed = loaded.is_assumed;
    node.names = loaded.names;
    for (const std::string& name : loaded.names) by_name_.emplace(name, &node);
    if (node.is_global) globals_.push_back(&node);
  }
}

LinkNode* Linker::loaded_as(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

const std::string* Linker::elsewhere(const std::string& name) const {
  const auto found = elsewhere_.find(name);
  return found == elsewhere_.end() ? nullptr : &found->second;
}

// Returns whether all symbols of the library were found before, in libraries that this graph has
// too.
bool Linker::is_known_complete(const LinkNode& node, const LinkGraph& graph) {
  const std::lock_guard lock(mutex_);
  const auto known = complete_.find(node.library);
  return known != complete_.end() &&
         std::all_of(known->second.begin(), known->second.end(),
                     [&](const LibraryPtr& provider) { return graph.has(provider.get()); });
}

std::vector<uint32_t> Linker::relocated_of(const LinkNode& node) {
  if (node.is_root) return relocated_in(node, search_.files());
  {
    const std::lock_guard lock(mutex_);
    const auto known = relocated_.find(node.library);
    if (known != relocated_.end()) return known->second;
  }
  std::vector<uint32_t> relocated = relocated_in(node, search_.files());
  const std::lock_guard lock(mutex_);
  return relocated_[node.library] = std::move(relocated);
}

void Linker::check_symbols(const LinkGraph& graph, const LinkNode& node, LinkFacts* facts) {
  const Library* const library = node.library.get();
  if (is_known_complete(node, graph)) return;
  std::vector<WantedSymbol> absent;
  std::set<LibraryPtr> providers;
  bool needs_root = node.is_root;  // the file may be freed before this Linker
  library->symbols.for_each_wanted([&](const WantedSymbol& wanted) {
    if (wanted.weak) return;
    if (const LinkNode* provider = graph.provider(wanted)) {
      if (!wanted.version.empty() && lacks_versions(*provider, wanted, search_.files())) {
        facts->problems.push_back({LinkProblem::Kind::kVersion,
                                   owner(node),
                                   std::string(wanted.version),
                                   {},
                                   std::string(wanted.library),
                                   provider->path,
                                   {},
                                   0});
      }
      needs_root = needs_root || provider->is_root;
      if (!needs_root) providers.insert(provider->library);
    } else if (!graph.process().is_this_process || !is_bound_here(wanted)) {
      absent.push_back(wanted);
    }
  });
  for (const WantedSymbol& own : library->symbols.unreachable()) {
    if (!own.weak && graph.provider(own) == nullptr) absent.push_back(own);
  }
  if (!absent.empty()) {  // the loader looks up only these
    const std::vector<uint32_t> relocated = relocated_of(node);
    std::erase_if(absent, [&](const WantedSymbol& symbol) {
      return !std::binary_search(relocated.begin(), relocated.end(), symbol.index);
    });
  }
  if (absent.empty()) {
    if (needs_root) return;
    const std::lock_guard lock(mutex_);
    complete_[node.library] = {providers.begin(), providers.end()};
    return;
  }
  if (!node.is_root && absent.size() > kMaxSymbols) absent.resize(kMaxSymbols);
  for (const WantedSymbol& symbol : absent) {
    LinkProblem problem{LinkProblem::Kind::kSymbol,
                        owner(node),
                        std::string(symbol.name),
                        std::string(symbol.version),
                        {},
                        {},
                        {},
                        0};
    facts->problems.push_back(std::move(problem));
  }
}

LinkFacts Linker::link(const std::shared_ptr<const Library>& file, const std::string& path) {
  LinkFacts facts;
  if (file == nullptr || file->machine != process_.places.machine) return facts;
  facts.is_resolved = true;
  facts.program = process_.program;
  LinkGraph graph(this, file, path);
  graph.resolve(&facts);
  for (const LinkNode* node : graph.fresh()) {
    if (!node->is_root) facts.libraries.push_back(node->path);
    check_versions(graph, *node, &facts);
    check_mark(graph, *node, &facts);
  }
  for (const LinkNode* node : graph.fresh()) {
    const int level = node->library->cpu_level;
    if (process_.places.cpu_level == 0 || level <= process_.places.cpu_level) continue;
    facts.problems.push_back(
        {LinkProblem::Kind::kCpuLevel, owner(*node), {}, {}, {}, node->path, {}, level});
  }
  check_tls(graph, &facts);
  // A library that is missing might define the missing symbols.
  if (has_kind(facts, LinkProblem::Kind::kMissing) ||
      has_kind(facts, LinkProblem::Kind::kRefused) || graph.has_unknown()) {
    return facts;
  }
  // The loader relocates dependencies first.
  const std::vector<const LinkNode*> fresh = graph.fresh();
  for (auto node = fresh.rbegin(); node != fresh.rend(); ++node) {
    check_symbols(graph, **node, &facts);
  }
  return facts;
}

}  // namespace opdock
