// Reads the dynamic section: the entries that the dynamic loader uses.
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

// The two parts of a symbol's entry in .gnu.version.
inline constexpr uint16_t kVersionIndex = 0x7fff, kVersionHidden = 0x8000;

struct VersionDefinition {  // an entry of .gnu.version_d
  uint16_t index = 0;       // the index of its symbols in .gnu.version
  std::string name;         // "GLIBCXX_3.4.30"
};

struct Dynamic {
  std::vector<std::string> needed;
  // DT_FILTER, without which the loader refuses the file, and DT_AUXILIARY, which may be absent.
  // filters and auxiliaries name libraries that are searched before this one.
  std::vector<std::string> filters, auxiliaries;
  std::string soname, rpath, runpath;
  bool has_runpath = false;             // even an empty RUNPATH disables the RPATHs
  std::vector<SymbolVersion> versions;  // the needed versions
  bool static_tls = false;
  bool executable = false;          // DF_1_PIE: a program, which dlopen refuses
  bool relative = false;            // DT_RELR: relocations in a form that old loaders do not know
  bool no_open = false;             // DF_1_NOOPEN: dlopen refuses the file, also as a dependency
  bool no_default_folders = false;  // DF_1_NODEFLIB
  Extent names;                     // the string table, in the file
  uint64_t symbols = 0;             // this and the next ones are addresses; 0 if absent
  uint64_t symbols_end = 0;         // upper bound: where the next table begins
  uint64_t gnu_hash = 0;
  uint64_t hash = 0;
  uint64_t definitions = 0;  // DT_VERDEF: address and count
  uint64_t num_definitions = 0;
  uint64_t symbol_versions = 0;  // DT_VERSYM: address
  // DT_RELA and DT_JMPREL: {address, bytes}, 0 if absent.
  std::array<std::pair<uint64_t, uint64_t>, 2> relocations{};
  std::pair<uint64_t, uint64_t> relative_table;  // DT_RELR: {address, bytes}
  uint64_t num_relative = 0;      // DT_RELACOUNT: how many first entries of DT_RELA are relative
  bool text_relocations = false;  // DT_TEXTREL: segments are made writable to be relocated
};

// Returns the hash that DT_HASH and symbol versions use. Source: System V ABI, "Hash Table".
uint32_t sysv_hash(std::string_view name);

// Reads PT_DYNAMIC and the tables that it refers to. Returns nullopt if there is none or it cannot
// be read. Everything that is wrong becomes a defect.
std::optional<Dynamic> read_dynamic(const ElfFile& elf);

// Returns the symbol versions that the file defines, without its base version (the file's own
// name). Empty if it defines none; entries after a damaged one are left out.
std::vector<VersionDefinition> read_version_definitions(const ElfFile& elf, const Dynamic& dynamic);

}  // namespace opdock
