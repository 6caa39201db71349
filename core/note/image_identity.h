// What a device image says about itself.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

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

// "sm_90a" for 90 and "a"; PTX is "compute_90a".
std::string cuda_arch(ImageKind kind, unsigned number, std::string_view suffix);

}  // namespace opdock
