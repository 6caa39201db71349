// One native file: what it is, and whether it runs on a machine.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "compat/verdict.h"
#include "inspect/linkers.h"
#include "link/files.h"
#include "note/file_facts.h"

namespace opdock {

struct InspectedFile {
  FileFacts file;
  Verdict verdict;
};

// Reads and judges the file that `files` has at `path`. A file without an Opdock note is judged as
// what it is, a library or a program, not as a plugin. Every problem is a reason of the verdict.
// Thread-safe. linkers: of the package that the file belongs to.
InspectedFile inspect_file(const Files& files, const std::string& path, const Surroundings& around,
                           Linkers* linkers);

// Whether somebody meant the file to be a plugin: it has a note, or what is left of one.
bool is_plugin(const FileFacts& file);

// Judges a file that is no plugin, as a library or a program; sets file->link.
Verdict judge_native(FileFacts* file, const Surroundings& around, Linkers* linkers);

}  // namespace opdock
