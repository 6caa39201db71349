// What the file as a whole needs of CPU, C library and other libraries.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "base/reason.h"
#include "facts/machine.h"
#include "note/file_facts.h"

namespace opdock {

// Appends every reason of the stages "file", "note", "abi" and "system" that the file's reader
// could not know by itself; of a file for another machine that alone. Pure.
void judge_system(const FileFacts& file, const MachineFacts& machine, std::vector<Reason>* reasons);

// The symbol versions alone: for each library's family (GLIBC, GLIBCXX, …) the newest one needed.
void judge_symbol_versions(const FileFacts& file, const MachineFacts& machine,
                           std::vector<Reason>* reasons);

// The libraries that the note declares with ranges.
void judge_libraries(const Note& note, const MachineFacts& machine, std::vector<Reason>* reasons);

// Libraries in DT_NEEDED that the loader would not find.
void judge_missing_libraries(const FileFacts& file, std::vector<Reason>* reasons);

}  // namespace opdock
