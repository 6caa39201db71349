// Reads and checks the [[op]] tables of plugin.toml.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "manifest/manifest.h"
#include "manifest/toml_table.h"

namespace opdock {

// Reads op `number`, from 1, except for what check_op() fills in.
OpDecl read_op(const toml::table& toml, size_t number, std::vector<Mistake>* mistakes);

// Checks op `number` (from 0), which was read from `toml`: its schema and what depends on it, such
// as shape rules and the device argument. Makes the schema canonical. It is a mistake if another op
// that has been checked has the same name. read_op() has already reported what is missing.
void check_op(const toml::table& toml, Manifest* manifest, size_t number,
              std::vector<Mistake>* mistakes);

// Checks an op that has a `gradient-of` likewise, once all others are checked.
void check_gradient_op(const toml::table& toml, Manifest* manifest, size_t number,
                       std::vector<Mistake>* mistakes);

// Checks the gradients of op `number` (from 0), once all ops have their schemas.
void check_gradients(const toml::table& toml, const Manifest& manifest, size_t number,
                     std::vector<Mistake>* mistakes);

}  // namespace opdock
