// Defines the order of the plugins that provide one op.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "discover/catalog.h"

namespace opdock {

// Returns true if the candidate's note has op `op`, and `plugin` is empty or the plugin's name.
bool provides(const Candidate& candidate, const std::string& plugin, const std::string& op);

// Returns whether `a` comes before `b`: usable before undecided before rejected, then the newer
// version, then the smaller rank.
bool is_better(const Candidate& a, const Candidate& b);

// provides() and is_better() for source plugins follow the rules of those for binary ones.
bool provides(const SourcePlugin& source, const std::string& plugin, const std::string& op);
bool is_better(const SourcePlugin& a, const SourcePlugin& b);

}  // namespace opdock
