// The dynamic section: what the loader will look at.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "note/elf_file.h"
#include "note/file_facts.h"

namespace opdock {

struct Dynamic {
  std::vector<std::string> needed;
  std::string soname, rpath, runpath;
  std::vector<SymbolVersion> versions;  // needed ones
  bool static_tls = false;
  bool executable = false;   // DF_1_PIE: a program, which dlopen refuses
  Extent names;              // the string table, in the file
  uint64_t symbols = 0;      // addresses; 0 where absent
  uint64_t symbols_end = 0;  // at most: where the next table begins
  uint64_t gnu_hash = 0;
  uint64_t hash = 0;
  uint64_t definitions = 0;  // DT_VERDEF: address, and how many
  uint64_t num_definitions = 0;
};

// Reads PT_DYNAMIC and the tables it points at. nullopt if there is none that can be read; what is
// wrong becomes a defect.
std::optional<Dynamic> read_dynamic(const ElfFile& elf);

// The symbol versions that the file defines, "GLIBCXX_3.4.30", without its base version (its own
// name). Empty if it defines none; those behind a damaged entry are left out.
std::vector<std::string> read_version_definitions(const ElfFile& elf, const Dynamic& dynamic);

}  // namespace opdock
