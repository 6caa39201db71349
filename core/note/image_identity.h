// Reads the architecture and the toolkit from a device image itself.
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
  std::string arch;           // "sm_90a", "compute_75", "gfx90a:xnack-"; empty: unknown
  bool suffix_shown = false;  // for a cubin: a suffix would show, so without one it has none
  Version toolkit;            // empty: unknown
};

// Examines the image of `size` bytes at `offset`; source code shows nothing. If the image is not of
// that kind, returns nullopt and describes the problem in *problem.
std::optional<ImageIdentity> identify_image(FileReader* reader, ImageKind kind, uint64_t offset,
                                            uint64_t size, std::string* problem);

// Reads only a cubin's ELF header. Returns nullopt and sets *problem if it is not a cubin's. The
// toolkit may be missing, and the suffix too, where a note holds them.
std::optional<ImageIdentity> identify_cubin_header(const Elf64_Ehdr& header, std::string* problem);

// The note that ptxas and nvlink write into newer cubins: its owner, its type and its greatest size
// in bytes.
inline constexpr char kToolkitNoteOwner[12] = "NVIDIA Corp";
inline constexpr uint32_t kToolkitNoteType = 2000;
inline constexpr uint64_t kMaxToolkitNote = 4096;
// Adds what the note in `bytes`, which begin with its header, says about the cubin whose header
// gave *identity. A note of another kind or a damaged one changes nothing.
void read_toolkit_note(const std::vector<uint8_t>& bytes, ImageIdentity* identity);

// Returns "sm_90a" for 90 and "a", or "compute_90a" for PTX.
std::string cuda_arch(ImageKind kind, unsigned number, std::string_view suffix);

}  // namespace opdock
