// What the dynamic loader goes by in a shared object, read once.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "note/elf_symbols.h"

namespace opdock {

// Immutable once read, so threads share it.
struct Library {
  std::string path;  // under which it was opened
  uint16_t machine = 0;
  bool is_elf = false;
  bool is_other_class = false;  // 32 bits: the loader looks on in the next folder
  Dynamic dynamic;
  SymbolTable symbols;
  uint64_t tls_size = 0, tls_align = 1;  // PT_TLS, in memory
  // Which TLS blocks must lie at fixed offsets: its own, and those of the libraries that define
  // these symbols. What DF_STATIC_TLS says does not count.
  bool fixes_own_tls = false;
  std::vector<uint32_t> fixes_tls_of;
  int cpu_level = 0;  // x86-64's level that its GNU property says is needed; 0: none is named
  // What the loader refuses the file for, or would crash at: it is damaged, or no library at all.
  std::optional<Reason> refusal;
};

// Where no program header says it, the C library's default: yes, but on aarch64.
bool wants_executable_stack(const ElfFile& elf);

// Reads what is behind the headers, which `elf` has; `dynamic` is what read_dynamic(elf) said.
// Defects are added to those of elf; refusal stays empty.
Library read_library(const ElfFile& elf, Dynamic dynamic, const std::string& path);

// Adds a defect where the loader would crash: a relocation that it does not know, or that writes
// outside the file's memory. Reads every relocation.
void check_relocations(const ElfFile& elf, const Dynamic& dynamic);

// Which of the symbols at `indices` the file's relocations refer to: the loader looks up no others.
// All of them where the relocations cannot be read.
std::vector<uint32_t> relocated_symbols(const ElfFile& elf, const Dynamic& dynamic,
                                        const std::vector<uint32_t>& indices);

}  // namespace opdock
