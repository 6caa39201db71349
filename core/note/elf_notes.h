// Finds the Opdock note through the PT_NOTE segments.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "note/elf_file.h"
#include "note/note.h"

namespace opdock {

struct FoundNote {
  Note note;
  uint64_t address = 0;  // the virtual address of the note's descriptor
};

// Searches the PT_NOTE segments. Adds a defect if there is no Opdock note, or two, if its sizes
// exceed the segment, if read_note refuses its descriptor, or if it is not loaded into memory.
// Ignores notes of other owners.
std::optional<FoundNote> find_note(const ElfFile& elf);

}  // namespace opdock
