// The dynamic symbols of one file, held in memory and looked up as the dynamic loader does.
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

// A symbol that a file wants from elsewhere. The texts lie in the file's SymbolTable.
struct WantedSymbol {
  std::string_view name;
  std::string_view version;  // "GLIBC_2.34"; empty: none is asked for
  std::string_view library;  // of which the version is asked
  bool hidden = false;       // a definition without a version will not do
  bool weak = false;         // may be absent
  bool is_tls = false;
  uint32_t index = 0;  // in the symbol table
};

uint32_t gnu_hash(std::string_view name);

// Immutable after reading, so any number of threads may look up.
class SymbolTable {
 public:
  // With a damaged hash table the table is empty; what is wrong becomes a defect of elf. Without
  // one nothing in it is found, and how many symbols there are is guessed.
  static SymbolTable read(const ElfFile& elf, const Dynamic& dynamic);

  // Whether the loader would bind `wanted` to a definition in this file; hash: gnu_hash of its
  // name. Source: the rules that glibc's dl-lookup.c implements, for names and for versions.
  bool defines(const WantedSymbol& wanted, uint32_t hash) const;

  // visit(const Elf64_Sym&, std::string_view name), for each but the first, which is empty.
  template <typename Visit>
  void for_each(Visit visit) const {
    for (size_t i = 1; i < symbols_.size(); ++i) visit(symbols_[i], text_at(symbols_[i].st_name));
  }
  // visit(const WantedSymbol&), for each undefined symbol.
  template <typename Visit>
  void for_each_wanted(Visit visit) const {
    for (size_t i = 1; i < symbols_.size(); ++i) {
      if (is_reference(symbols_[i])) visit(wanted(static_cast<uint32_t>(i)));
    }
  }

  // The symbol at that index as a reference; nullopt: it is none.
  std::optional<WantedSymbol> wanted_at(uint32_t index) const;

  // Definitions that the hash table does not lead to. A relocation of the file's own that refers to
  // one looks for it elsewhere. Looks at all symbols.
  std::vector<WantedSymbol> unreachable() const;

  // Whether the file defines any symbol versions, and whether this one. A file without any
  // satisfies every need for a version.
  bool has_versions() const { return !indices_.empty(); }  // defined or needed
  bool has_definitions() const { return !definitions_.empty(); }
  bool defines_version(std::string_view version) const;
  const std::vector<VersionDefinition>& definitions() const { return definitions_; }

  size_t bytes() const;  // of memory, about

 private:
  // A reference that is hidden is bound to nothing but the file itself.
  static bool is_own(const Elf64_Sym& symbol) {
    const unsigned visibility = ELF64_ST_VISIBILITY(symbol.st_other);
    return visibility == STV_HIDDEN || visibility == STV_INTERNAL;
  }

  static bool is_reference(const Elf64_Sym& symbol) {
    return symbol.st_shndx == SHN_UNDEF && ELF64_ST_BIND(symbol.st_info) != STB_LOCAL &&
           symbol.st_name != 0 && !is_own(symbol);
  }

  enum class Match { kNo, kYes, kOnlyOne };  // kOnlyOne: if no other version of the name is there
  Match match(uint32_t index, const WantedSymbol& wanted) const;
  WantedSymbol wanted(uint32_t index) const;
  bool search_gnu(const WantedSymbol& wanted, uint32_t hash) const;
  bool search_sysv(const WantedSymbol& wanted) const;
  std::string_view text_at(uint32_t offset) const;  // of the string table
  bool has_known_indices() const;

  std::vector<Elf64_Sym> symbols_;
  std::string names_;                           // the whole string table
  std::vector<uint16_t> indices_;               // .gnu.version; empty: no versions at all
  std::vector<VersionDefinition> definitions_;  // by index
  struct Need {  // a version that is needed; the texts are offsets in names_
    uint32_t version_at = 0, library_at = 0;
    bool hidden = false;
  };
  std::vector<Need> needs_;  // by index
  // DT_GNU_HASH, or DT_HASH where that is absent.
  std::vector<uint64_t> bloom_;
  std::vector<uint32_t> buckets_, chains_;
  uint32_t first_hashed_ = 0, bloom_shift_ = 0;
  bool is_gnu_ = false;
};

}  // namespace opdock
