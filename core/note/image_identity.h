// What a device image says about itself.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <elf.h>

#include <optional>
#include <string>
#include <vector>

#include "note/note.h"
#include "note/reader.h"

namespace opdock {

struct ImageIdentity {
  std::string arch;           // "sm_90a", "compute_75", "gfx90a:xnack-"; empty: not shown
  bool suffix_shown = false;  // of a cubin: `a` and `f` would be seen, so none means none
  Version toolkit;            // empty: not shown
};

// Looks at the image of `size` bytes at `offset`; source shows nothing. nullopt, with what is wrong
// in *problem, if it is no image of that kind.
std::optional<ImageIdentity> identify_image(FileReader* reader, ImageKind kind, uint64_t offset,
                                            uint64_t size, std::string* problem);

// What a cubin's ELF header alone says; nullopt and *problem if it is no cubin's. Without the
// toolkit, and perhaps without the suffix, where a note has them.
std::optional<ImageIdentity> identify_cubin_header(const Elf64_Ehdr& header, std::string* problem);

// The note that ptxas and nvlink write into newer cubins: its owner, type and greatest size.
inline constexpr char kToolkitNoteOwner[12] = "NVIDIA Corp";
inline constexpr uint32_t kToolkitNoteType = 2000;
inline constexpr uint64_t kMaxToolkitNote = 4096;
// Adds what the note in `bytes`, from its head on, says of the cubin whose header gave *identity.
// Another note, and a damaged one, changes nothing.
void read_toolkit_note(const std::vector<uint8_t>& bytes, ImageIdentity* identity);

// "sm_90a" for 90 and "a"; PTX is "compute_90a".
std::string cuda_arch(ImageKind kind, unsigned number, std::string_view suffix);

}  // namespace opdock
