// What differs between two native files, such as two builds of one library.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "inspect/inspect_file.h"

namespace opdock {

// Sorted, each once.
struct Changes {
  std::vector<std::string> added, removed;
  bool empty() const { return added.empty() && removed.empty(); }
};

struct FileDiff {
  FileFacts a, b;
  Changes archs;     // of device images: "sm_90", "compute_80", "gfx90a"
  Changes toolkits;  // that made them: "12.9"
  Changes needed;    // libraries
  Changes versions;  // symbol versions needed: "GLIBC_2.34 of libc.so.6"
  Changes exports;   // symbols that others may use
  Changes imports;   // symbols wanted from elsewhere
  Changes traits;    // "soname libx.so.1", "runpath $ORIGIN", "an executable stack"
  // Nothing but sizes differs.
  bool is_equal() const;
};

// Bytes of a file's device images; those that lie in the same place count once.
uint64_t image_bytes(const FileFacts& file);

FileDiff compare(FileFacts a, FileFacts b);

}  // namespace opdock
