// The dynamic section: what the loader will look at.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "note/elf_file.h"
#include "note/file_facts.h"

namespace opdock {

// The two parts of what .gnu.version says of a symbol.
inline constexpr uint16_t kVersionIndex = 0x7fff, kVersionHidden = 0x8000;

struct VersionDefinition {  // one of .gnu.version_d
  uint16_t index = 0;       // what .gnu.version says of its symbols
  std::string name;         // "GLIBCXX_3.4.30"
};

struct Dynamic {
  std::vector<std::string> needed;
  // DT_FILTER, without which the loader refuses the file, and DT_AUXILIARY, which may be absent:
  // libraries that are searched before this one.
  std::vector<std::string> filters, auxiliaries;
  std::string soname, rpath, runpath;
  bool has_runpath = false;             // even an empty one keeps the RPATHs from being searched
  std::vector<SymbolVersion> versions;  // needed ones
  bool static_tls = false;
  bool executable = false;          // DF_1_PIE: a program, which dlopen refuses
  bool relative = false;            // DT_RELR: relocations in a form that old loaders do not know
  bool no_open = false;             // DF_1_NOOPEN: dlopen refuses it, also as a dependency
  bool no_default_folders = false;  // DF_1_NODEFLIB
  Extent names;                     // the string table, in the file
  uint64_t symbols = 0;             // addresses; 0 where absent
  uint64_t symbols_end = 0;         // at most: where the next table begins
  uint64_t gnu_hash = 0;
  uint64_t hash = 0;
  uint64_t definitions = 0;  // DT_VERDEF: address, and how many
  uint64_t num_definitions = 0;
  uint64_t symbol_versions = 0;  // DT_VERSYM: address
  // DT_RELA and DT_JMPREL: {address, bytes}, 0 where absent.
  std::array<std::pair<uint64_t, uint64_t>, 2> relocations{};
  std::pair<uint64_t, uint64_t> relative_table;  // DT_RELR: likewise
  uint64_t num_relative = 0;                     // of them, the first ones of DT_RELA: DT_RELACOUNT
  bool text_relocations = false;                 // DT_TEXTREL: segments are made writable for them
};

// The hash of DT_HASH and of symbol versions. Source: System V ABI, "Hash Table".
uint32_t sysv_hash(std::string_view name);

// Reads PT_DYNAMIC and the tables it points at. nullopt if there is none that can be read; what is
// wrong becomes a defect.
std::optional<Dynamic> read_dynamic(const ElfFile& elf);

// The symbol versions that the file defines, without its base version (its own name). Empty if it
// defines none; those behind a damaged entry are left out.
std::vector<VersionDefinition> read_version_definitions(const ElfFile& elf, const Dynamic& dynamic);

}  // namespace opdock
