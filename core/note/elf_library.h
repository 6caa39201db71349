// The properties of a shared object that the dynamic loader uses, read once.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "note/elf_symbols.h"

namespace opdock {

// Immutable after reading, so threads may share it.
struct Library {
  std::string path;  // the path under which it was opened
  uint16_t machine = 0;
  bool is_elf = false;
  bool is_other_class = false;  // 32 bits: the loader goes on to the next folder
  Dynamic dynamic;
  SymbolTable symbols;
  uint64_t tls_size = 0, tls_align = 1;  // PT_TLS: size and alignment in memory
  // Whether its own TLS block must have a fixed offset (static TLS), and the symbols whose defining
  // libraries must have theirs fixed. Derived from the relocations, not from DF_STATIC_TLS.
  bool fixes_own_tls = false;
  std::vector<uint32_t> fixes_tls_of;
  int cpu_level = 0;  // the x86-64 level that its GNU property requires; 0: none is named
  // Why the loader refuses the file or would crash: it is damaged, or not a shared object.
  std::optional<Reason> refusal;
};

// Returns whether the file asks for an executable stack. Without PT_GNU_STACK the C library's
// default counts: yes, except on aarch64.
bool wants_executable_stack(const ElfFile& elf);

// Reads everything after the headers, which are already in `elf`; `dynamic` comes from
// read_dynamic(elf). Adds defects to those of elf; leaves `refusal` empty.
Library read_library(const ElfFile& elf, Dynamic dynamic, const std::string& path);

// Adds a defect where the loader would crash: for a relocation that it does not know, or that
// writes outside the file's memory. Reads every relocation.
void check_relocations(const ElfFile& elf, const Dynamic& dynamic);

// Returns those of the symbols at `indices` that the file's relocations refer to: the loader looks
// up no others. Returns all of them if the relocations cannot be read.
std::vector<uint32_t> relocated_symbols(const ElfFile& elf, const Dynamic& dynamic,
                                        const std::vector<uint32_t>& indices);

}  // namespace opdock
