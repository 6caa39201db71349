// Parses what a note or a plugin.toml declares of an op.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/reason.h"
#include "call/describe.h"
#include "note/note.h"

namespace opdock {

// Parses the declaration of `op`. ops: all ops of its plugin, itself included. Returns nullopt, and
// *error, if a shape rule, a gradient or a name in it is wrong.
std::optional<Declared> declared_of(const OpClaim& op, std::span<const OpClaim> ops, Reason* error);

// Returns where the tensors of each of the schema's parameters lie, OPDOCK_ON_…; empty if all are
// where the op runs.
std::vector<uint8_t> arg_devices_of(const OpClaim& op, const Schema& schema);

}  // namespace opdock
