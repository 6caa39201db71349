// Opdock's table of device images, checked against the file, the images themselves and the note.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "note/elf_file.h"
#include "note/file_facts.h"

namespace opdock {

// Sets facts->image_table and appends the table's images to facts->images; reads facts->note, which
// is there. `symbol`: OPDOCK_IMAGES_NAME. Defects: image-table, claim-arch, claim-images, and with
// `check_digests` claim-digest (which reads every image whole).
void read_image_table(const ElfFile& elf, const std::optional<Elf64_Sym>& symbol,
                      bool check_digests, FileFacts* facts);

// The entries of a table that lies in memory. False, and *problem (image-table), if its head does
// not say where they are; what they point at is not looked at.
bool read_image_entries(std::span<const uint8_t> table, std::vector<ImageEntry>* entries,
                        Reason* problem);

}  // namespace opdock
