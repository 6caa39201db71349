// Adds the reasons that depend on all candidates together: deselected, duplicate, superseded.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "discover/catalog.h"

namespace opdock {

using Candidates = std::vector<std::shared_ptr<Candidate>>;

// Each of these takes the candidates in search order and adds reasons to their verdicts.
void mark_deselected(const SearchEnvironment& environment, const Candidates& candidates);
void mark_duplicates(const Candidates& candidates);
void mark_superseded(const Candidates& candidates);

// Returns the reason if the environment variables switch off a plugin of this name.
std::optional<Reason> deselection(const SearchEnvironment& environment, const std::string& name);

// Rejects the candidate and puts the reason before its other reasons.
void reject(Candidate* candidate, Reason reason);

}  // namespace opdock
