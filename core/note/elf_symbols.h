// The dynamic symbols of one file, held in memory and looked up in the way of the dynamic loader.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <elf.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "note/elf_dynamic.h"

namespace opdock {

// A symbol that a file references and another must define. The texts are part of the file's
// SymbolTable.
struct WantedSymbol {
  std::string_view name;
  std::string_view version;  // "GLIBC_2.34"; empty: no version is required
  std::string_view library;  // the library that the version belongs to
  bool hidden = false;       // a definition without a version does not satisfy it
  bool weak = false;         // may be absent
  bool is_tls = false;
  uint32_t index = 0;  // in the symbol table
};

uint32_t gnu_hash(std::string_view name);

// Immutable after reading, so any number of threads may look up symbols.
class SymbolTable {
 public:
  // Reads the symbol table. If the hash table is damaged, the result is empty, and a defect is
  // added to elf. Without a hash table, no lookup finds a symbol, and the number of symbols is
  // guessed.
  static SymbolTable read(const ElfFile& elf, const Dynamic& dynamic);

  // Returns whether the loader would bind `wanted` to a definition in this file. hash: gnu_hash of
  // its name. Source: the rules for names and versions in glibc's dl-lookup.c.
  bool defines(const WantedSymbol& wanted, uint32_t hash) const;

  // Calls visit(const Elf64_Sym&, std::string_view name) for each symbol but the first, which is
  // empty.
  template <typename Visit>
  void for_each(Visit visit) const {
    for (size_t i = 1; i < symbols_.size(); ++i) visit(symbols_[i], text_at(symbols_[i].st_name));
  }
  // Calls visit(const WantedSymbol&) for each undefined symbol.
  template <typename Visit>
  void for_each_wanted(Visit visit) const {
    for (size_t i = 1; i < symbols_.size(); ++i) {
      if (is_reference(symbols_[i])) visit(wanted(static_cast<uint32_t>(i)));
    }
  }

  // Returns the symbol at that index as a reference; nullopt if it is not one.
  std::optional<WantedSymbol> wanted_at(uint32_t index) const;

  // Returns the definitions that a lookup in the hash table does not find: if one of the file's own
  // relocations refers to such a symbol, the loader looks for it in other files. Visits all
  // symbols.
  std::vector<WantedSymbol> unreachable() const;

  // has_definitions: whether the file defines any symbol versions; if not, it satisfies every
  // required version. defines_version: whether it defines this one.
  bool has_versions() const { return !indices_.empty(); }  // defined or needed ones
  bool has_definitions() const { return !definitions_.empty(); }
  bool defines_version(std::string_view version) const;
  const std::vector<VersionDefinition>& definitions() const { return definitions_; }

  size_t bytes() const;  // approximate memory use

 private:
  // Returns whether the symbol's visibility is hidden: such a reference binds only within the file.
  static bool is_own(const Elf64_Sym& symbol) {
    const unsigned visibility = ELF64_ST_VISIBILITY(symbol.st_other);
    return visibility == STV_HIDDEN || visibility == STV_INTERNAL;
  }

  static bool is_reference(const Elf64_Sym& symbol) {
    return symbol.st_shndx == SHN_UNDEF && ELF64_ST_BIND(symbol.st_info) != STB_LOCAL &&
           symbol.st_name != 0 && !is_own(symbol);
  }

  // kOnlyOne: a match if no other version of the name exists.
  enum class Match { kNo, kYes, kOnlyOne };
  Match match(uint32_t index, const WantedSymbol& wanted) const;
  WantedSymbol wanted(uint32_t index) const;
  bool search_gnu(const WantedSymbol& wanted, uint32_t hash) const;
  bool search_sysv(const WantedSymbol& wanted) const;
  std::string_view text_at(uint32_t offset) const;  // in the string table
  bool has_known_indices() const;

  std::vector<Elf64_Sym> symbols_;
  std::string names_;                           // the whole string table
  std::vector<uint16_t> indices_;               // .gnu.version; empty: no versions at all
  std::vector<VersionDefinition> definitions_;  // indexed by the version's index
  struct Need {                                 // a needed version; the texts are offsets in names_
    uint32_t version_at = 0, library_at = 0;
    bool hidden = false;
  };
  std::vector<Need> needs_;  // indexed by the version's index
  // DT_GNU_HASH, or DT_HASH if the file has no DT_GNU_HASH.
  std::vector<uint64_t> bloom_;
  std::vector<uint32_t> buckets_, chains_;
  uint32_t first_hashed_ = 0, bloom_shift_ = 0;
  bool is_gnu_ = false;
};

}  // namespace opdock
