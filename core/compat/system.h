// What the file as a whole needs of CPU, C library and other libraries.
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
// could not know by itself; of a file for another machine that alone. Pure.
void judge_system(const FileFacts& file, const MachineFacts& machine, Role role,
                  std::vector<Reason>* reasons);

// What the dynamic loader would stumble over, in its order.
void judge_link(const FileFacts& file, const MachineFacts& machine, Role role,
                std::vector<Reason>* reasons);

// The libraries that the note declares with ranges.
void judge_libraries(const Note& note, const MachineFacts& machine, std::vector<Reason>* reasons);
// Whether a shared object belongs to a library that the note declares: that is in the process or
// not, and judged by its range.
bool is_declared(std::string_view name, const Note& note);

}  // namespace opdock
