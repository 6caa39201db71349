// Reads Opdock's table of device images and checks it against the file, the images themselves and
// the note.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "note/elf_file.h"
#include "note/file_facts.h"

namespace opdock {

// Sets facts->image_table and appends the table's images to facts->images. facts->note must be set.
// `symbol`: the dynamic symbol OPDOCK_IMAGES_NAME. Adds the defects image-table, claim-arch and
// claim-images, and with `check_digests` claim-digest, for which it reads every image completely.
void read_image_table(const ElfFile& elf, const std::optional<Elf64_Sym>& symbol,
                      bool check_digests, FileFacts* facts);

// Reads the entries of a table in memory. Returns false and sets *problem (image-table) if the
// table's head does not describe them properly. The data that the entries refer to is not checked.
bool read_image_entries(std::span<const uint8_t> table, std::vector<ImageEntry>* entries,
                        Reason* problem);

}  // namespace opdock
