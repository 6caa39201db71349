// One native file: what it is, and whether it runs on a machine.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "compat/verdict.h"
#include "facts/machine.h"
#include "inspect/files.h"
#include "note/file_facts.h"

namespace opdock {

// What files are judged against.
struct Surroundings {
  MachineFacts machine;
  bool described = false;  // not this machine: MachineSpec
};

struct InspectedFile {
  FileFacts file;
  Verdict verdict;
};

// Reads and judges the file that `files` has at `path`. A file without an Opdock note is judged as
// what it is, a library or a program, not as a plugin. Every problem is a reason of the verdict.
// Thread-safe.
InspectedFile inspect_file(const Files& files, const std::string& path, const Surroundings& around);

}  // namespace opdock
