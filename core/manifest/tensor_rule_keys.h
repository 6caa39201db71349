// The keys of an [[op]] that say what the host checks of a call's tensors: rows, contiguous,
// like, broadcast and in-place.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "manifest/manifest.h"
#include "manifest/toml_table.h"
#include "schema/schema.h"

namespace opdock {

// Reads the keys, checks them against the op's schema and sets op->tensor_rules. Where one of its
// results may be an argument, the op gets the flag in-place. report(place, found, wanted) is called
// for each mistake.
void read_tensor_rules(
    TomlTable* table, const Schema& schema, OpDecl* op,
    const std::function<void(TextPlace, const std::string&, std::string)>& report);

}  // namespace opdock
