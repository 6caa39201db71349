// A loaded object as it lies in memory: its note and its image table.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/reason.h"
#include "note/note.h"

namespace opdock {

// The image table of the object behind a dlopen handle; empty if its note names none. Appends
// reasons (note-missing, image-table) if what is mapped is not what was judged.
std::span<const uint8_t> mapped_images(void* handle, const Note& note,
                                       std::vector<Reason>* reasons);

// Compares the SHA-256 digest of every image in the table with the table's and the note's.
void check_image_digests(std::span<const uint8_t> table, const Note& note,
                         std::vector<Reason>* reasons);

}  // namespace opdock
