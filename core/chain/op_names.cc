// SPDX-License-Identifier: Apache-2.0
#include "chain/op_names.h"

#include <set>

namespace opdock {

std::vector<std::string> op_names(const Catalog& catalog) {
  std::set<std::string> names;
  for (const std::shared_ptr<const Candidate>& candidate : catalog.candidates()) {
    if (!candidate->file.note) continue;
    for (const OpClaim& op : candidate->file.note->ops) names.insert(op.name);
  }
  for (const std::shared_ptr<const SourcePlugin>& source : catalog.sources()) {
    if (!source->manifest) continue;
    for (const OpDecl& op : source->manifest->ops) {
      if (!op.name.empty()) names.insert(op.name);
    }
  }
  return {names.begin(), names.end()};
}

std::vector<std::string> known_plugins(const Catalog& catalog) {
  std::set<std::string> names;
  for (const std::shared_ptr<const Candidate>& candidate : catalog.candidates()) {
    if (candidate->file.note) names.insert(candidate->file.note->name);
  }
  for (const std::shared_ptr<const SourcePlugin>& source : catalog.sources()) {
    if (source->manifest) names.insert(source->manifest->name);
  }
  return {names.begin(), names.end()};
}

}  // namespace opdock
