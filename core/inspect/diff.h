// Compares two native files, such as two builds of one library.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "inspect/inspect_file.h"

namespace opdock {

// Sorted, without duplicates.
struct Changes {
  std::vector<std::string> added, removed;
  bool empty() const { return added.empty() && removed.empty(); }
};

struct FileDiff {
  FileFacts a, b;
  Changes archs;     // architectures of device images: "sm_90", "compute_80", "gfx90a"
  Changes toolkits;  // toolkits that made the images: "12.9"
  Changes needed;    // libraries
  Changes versions;  // symbol versions needed: "GLIBC_2.34 of libc.so.6"
  Changes exports;   // symbols that others may use
  Changes imports;   // symbols wanted from elsewhere
  Changes traits;    // "soname libx.so.1", "runpath $ORIGIN", "an executable stack"
  // Returns whether nothing but sizes differs.
  bool is_equal() const;
};

// Returns the bytes of a file's device images; images in the same place count once.
uint64_t image_bytes(const FileFacts& file);

FileDiff compare(FileFacts a, FileFacts b);

}  // namespace opdock
