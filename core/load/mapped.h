// A loaded object as it lies in memory: its note and its image table.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/reason.h"
#include "note/file_facts.h"

namespace opdock {

// The image table of the object behind a dlopen handle; empty if the file, which has a note, has
// none. Appends reasons (note-missing, file-changed, image-table) if what is mapped is not what was
// checked.
std::span<const uint8_t> mapped_images(void* handle, const FileFacts& file,
                                       std::vector<Reason>* reasons);

// Compares the table's entries with the note: their number, their bounds and the digests they name.
// Appends reasons (image-table, claim-digest). Reads no image.
void check_image_table(std::span<const uint8_t> table, const Note& note,
                       std::vector<Reason>* reasons);

// Compares an image's SHA-256 digest with the note's. To be asked before the image is used: hashing
// every image when a plugin is loaded would take milliseconds. False, and claim-digest, if it
// differs.
bool check_image(std::span<const uint8_t> image, const ImageClaim& claim,
                 std::vector<Reason>* reasons);

}  // namespace opdock
