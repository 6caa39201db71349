// Sorts the plugins that provide one op.
// SPDX-License-Identifier: Apache-2.0
#include "discover/catalog.h"

#include <algorithm>

#include "discover/order.h"

namespace opdock {

bool provides(const Candidate& candidate, const std::string& plugin, const std::string& op) {
  if (!candidate.file.note) return false;
  const Note& note = *candidate.file.note;
  if (!plugin.empty() && note.name != plugin) return false;
  return std::any_of(note.ops.begin(), note.ops.end(),
                     [&](const OpClaim& claim) { return claim.name == op; });
}

bool is_better(const Candidate& a, const Candidate& b) {
  if (a.verdict.state != b.verdict.state) return a.verdict.state < b.verdict.state;
  const bool has_notes = a.file.note && b.file.note;
  if (has_notes && a.file.note->version != b.file.note->version) {
    return a.file.note->version > b.file.note->version;
  }
  return a.rank < b.rank;
}

namespace {

// Returns the elements of `all` that provide op `name` ("op" or "plugin/op"), best first.
template <class T>
std::vector<std::shared_ptr<const T>> best_first(const std::vector<std::shared_ptr<const T>>& all,
                                                 const std::string& name) {
  const size_t slash = name.find('/');
  const std::string plugin = slash == std::string::npos ? "" : name.substr(0, slash);
  const std::string op = slash == std::string::npos ? name : name.substr(slash + 1);
  std::vector<std::shared_ptr<const T>> found;
  for (const std::shared_ptr<const T>& one : all) {
    if (provides(*one, plugin, op)) found.push_back(one);
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return is_better(*a, *b); });
  return found;
}

}  // namespace

std::vector<std::shared_ptr<const Candidate>> Catalog::providers(const std::string& name) const {
  return best_first(candidates_, name);
}

std::vector<std::shared_ptr<const SourcePlugin>> Catalog::source_providers(
    const std::string& name) const {
  return best_first(sources_, name);
}

}  // namespace opdock
