// Finding the Opdock note by PT_NOTE.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "note/elf_file.h"
#include "note/note.h"

namespace opdock {

struct FoundNote {
  Note note;
  uint64_t address = 0;  // virtual, of the head
};

// Searches the PT_NOTE segments. What is wrong with Opdock's own note becomes a defect: no note,
// two notes, sizes that run out of the segment, a descriptor that read_note refuses, one that is
// not loaded. Other notes do not matter.
std::optional<FoundNote> find_note(const ElfFile& elf);

}  // namespace opdock
