// Checks a loaded object in memory: its note and its image table.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/reason.h"
#include "note/file_facts.h"

namespace opdock {

// Returns the image table of the object with this dlopen handle; empty if the file has none. The
// file must have a note. Appends reasons (note-missing, file-changed, image-table) if the mapped
// object is not the one that was checked.
std::span<const uint8_t> mapped_images(void* handle, const FileFacts& file,
                                       std::vector<Reason>* reasons);

// Compares the table's entries with the note: their number, their bounds and the digests that they
// state. Appends reasons (image-table, claim-digest). Does not read the images.
void check_image_table(std::span<const uint8_t> table, const Note& note,
                       std::vector<Reason>* reasons);

// Compares an image's SHA-256 digest with the note's. Returns false and appends claim-digest if it
// differs. Call it before the image is used; hashing every image when the plugin is loaded would
// take milliseconds.
bool check_image(std::span<const uint8_t> image, const ImageClaim& claim,
                 std::vector<Reason>* reasons);

}  // namespace opdock
