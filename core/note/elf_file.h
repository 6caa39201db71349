// An ELF64 little-endian shared object, read with every bound checked, without section headers.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <elf.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/reason.h"
#include "note/reader.h"

namespace opdock {

// Collects a file's defects. The same code is kept a few times only: one cause, such as a
// truncation, shows in many places.
class Defects {
 public:
  explicit Defects(std::vector<Reason>* reasons) : reasons_(reasons) {}
  // advice: the code's own if empty.
  void add(Code code, std::string found, std::string wanted, const std::string& advice = "");
  bool has(Code code) const;

 private:
  std::vector<Reason>* reasons_;
};

// A part of the file, or of memory as the program headers lay it out.
struct Extent {
  uint64_t offset = 0;  // in the file
  uint64_t size = 0;
  uint64_t end() const { return offset + size; }
};

struct ElfFile {
  FileReader* reader;
  Defects* defects;
  Elf64_Ehdr header{};
  std::vector<Elf64_Phdr> segments;  // all program headers

  // Where the `size` bytes at virtual address `address` lie in the file; nullopt unless one PT_LOAD
  // has all of them in its file part and that part is inside the file.
  std::optional<uint64_t> to_offset(uint64_t address, uint64_t size, bool is_code = false) const;
  // From `address` to the end of its PT_LOAD's file part, cut at the end of the file. Only segments
  // that can be read, or, of code, run count.
  std::optional<Extent> rest_of_segment(uint64_t address, bool is_code = false) const;
};

// Reads the ELF header and the program headers and checks them. False if nothing further can be
// read; otherwise defects may have been added all the same. *is_elf: the magic is there. Of a
// 32-bit or big-endian file e_ident, e_type and e_machine are set, and nothing else is read.
bool read_headers(ElfFile* elf, bool* is_elf);

// The section headers, with names, that can be read: they may be missing or rubbish, so they serve
// only for hints and for finding what inspection shows.
struct Section {
  std::string name;  // cut at 32 bytes
  Extent extent;     // inside the file
};
std::vector<Section> read_sections(const ElfFile& elf);

std::string hex(uint64_t value);  // "0x1f"

}  // namespace opdock
