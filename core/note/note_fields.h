// The members of the note's JSON, read and checked.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "note/note.h"

namespace opdock {

// Fills everything but note->head. False, with reasons (note-json, note-field, claim-digest), if
// something is wrong; then what could be read is filled in.
bool read_note_json(std::string_view json, Note* note, std::vector<Reason>* reasons);

}  // namespace opdock
