// Opdock's table of device images, checked against the file, the images themselves and the note.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "note/elf_file.h"
#include "note/elf_notes.h"
#include "note/file_facts.h"

namespace opdock {

// Appends the table's images. Defects: image-table, claim-arch, claim-images, and with
// `check_digests` claim-digest (which reads every image whole).
void read_image_table(const ElfFile& elf, const FoundNote& found, bool check_digests,
                      std::vector<DeviceImage>* images);

}  // namespace opdock
