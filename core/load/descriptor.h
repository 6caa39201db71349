// Compares a plugin's run-time descriptor with its note.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "base/reason.h"
#include "note/note.h"
#include "opdock/plugin.h"

namespace opdock {

// Checks the descriptor against the ABI (struct sizes, members that must not be NULL) and against
// the note. Appends reasons; returns true if there are none. Reads only members inside struct_size.
bool check_descriptor(const opdock_plugin& descriptor, const Note& note,
                      std::vector<Reason>* reasons);

}  // namespace opdock
