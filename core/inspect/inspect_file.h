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

// The two parts of a verdict, of which the worse is its state: whether the file loads, by the
// reasons of all stages but "device"; and how its GPU code fares. described: each GPU has to be
// served.
State load_state(const std::vector<Reason>& reasons);
State gpu_state(const FileFacts& file, const Verdict& verdict, bool described);

// A GPU that has no image but the plugin's source is served once that is compiled for it: changes
// such devices of the verdict, and its reasons and state.
void count_compilation(const FileFacts& file, bool described, Verdict* verdict);

}  // namespace opdock
