// Reads and checks the members of the note's JSON.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "note/note.h"

namespace opdock {

// Fills in everything but note->head. If something is wrong, returns false, with reasons
// (note-json, note-field, claim-digest), and fills in what could be read.
bool read_note_json(std::string_view json, Note* note, std::vector<Reason>* reasons);

}  // namespace opdock
