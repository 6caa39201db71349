// The libraries a file needs, and whether they bring the symbols it wants.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "note/file_facts.h"

namespace opdock {

// Fills facts->missing_libraries with those of facts->needed that are not found.
void find_missing_libraries(FileFacts* facts);

// Walks the needs of the needs too: completes missing_libraries, and sets facts->unresolved to
// those of `wanted` (undefined, not weak) that no library on the way defines.
void resolve_symbols(const std::vector<std::string>& wanted, FileFacts* facts);

}  // namespace opdock
