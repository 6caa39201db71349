// Inspects one native file: what it is, and whether it runs on a machine.
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
// the library or program that it is, not as a plugin. Every problem is a reason of the verdict.
// linkers: those of the package that the file belongs to. Thread-safe.
InspectedFile inspect_file(const Files& files, const std::string& path, const JudgedMachine& around,
                           Linkers* linkers);

// Returns whether the file is meant to be a plugin: it has a note, what is left of one, or a
// plugin's entry function.
bool is_plugin(const FileFacts& file);

// Judges a file that is not a plugin, as a library or a program; sets file->link.
Verdict judge_native(FileFacts* file, const JudgedMachine& around, Linkers* linkers);

// These return the two parts of a verdict, whose state is the worse of them. load_state: whether
// the file loads, by the reasons of all stages but "device". gpu_state: how its GPU code fares;
// described: each GPU has to be served.
State load_state(const std::vector<Reason>& reasons);
State gpu_state(const FileFacts& file, const Verdict& verdict, bool described);

// Counts a GPU for which the plugin has only source as served, because the source will be compiled
// for it: changes such devices of the verdict, and its reasons and state.
void count_compilation(const FileFacts& file, bool described, Verdict* verdict);

}  // namespace opdock
