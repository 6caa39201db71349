// Judges what the file as a whole needs from the CPU, the C library and other libraries.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/reason.h"
#include "compat/verdict.h"
#include "facts/machine.h"
#include "note/file_facts.h"

namespace opdock {

// Appends every reason of the stages "file", "note", "abi" and "system" that the file's reader
// could not know. A file for another machine gets only that reason. Pure.
void judge_system(const FileFacts& file, const MachineFacts& machine, Role role,
                  std::vector<Reason>* reasons);

// Appends what would make the dynamic loader fail, in the loader's order.
void judge_link(const FileFacts& file, const MachineFacts& machine, Role role,
                std::vector<Reason>* reasons);

// Judges the libraries that the note declares with version ranges.
void judge_libraries(const Note& note, const MachineFacts& machine, std::vector<Reason>* reasons);
// Returns whether a shared object belongs to a library that the note declares. Such a library is
// judged by its range and by whether it is in the process.
bool is_declared(std::string_view name, const Note& note);

}  // namespace opdock
