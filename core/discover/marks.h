// What follows from looking at all candidates together: switched off, duplicate, superseded.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "discover/catalog.h"

namespace opdock {

using Candidates = std::vector<std::shared_ptr<Candidate>>;

// Each takes the candidates in their order and adds reasons to their verdicts.
void mark_deselected(const SearchEnvironment& environment, const Candidates& candidates);
void mark_duplicates(const Candidates& candidates);
void mark_superseded(const Candidates& candidates);

// The reason for which the variables switch a plugin of this name off, if they do.
std::optional<Reason> deselection(const SearchEnvironment& environment, const std::string& name);

// Adds a reason that rejects the candidate, before those it has.
void reject(Candidate* candidate, Reason reason);

}  // namespace opdock
