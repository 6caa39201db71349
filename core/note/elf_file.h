// Reads an ELF64 little-endian shared object, checks every bound, and does not rely on section
// headers.
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

// Collects a file's defects. Keeps only a few of the same code, since one cause, such as a
// truncation, shows in many places.
class Defects {
 public:
  explicit Defects(std::vector<Reason>* reasons) : reasons_(reasons) {}
  // advice: empty for the code's own advice.
  void add(Code code, std::string found, std::string wanted, const std::string& advice = "");
  bool has(Code code) const;

 private:
  std::vector<Reason>* reasons_;
};

// A range of the file, or of memory as the program headers lay it out.
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

  // Returns the file offset of the `size` bytes at virtual address `address`. Returns nullopt
  // unless one PT_LOAD holds all of them in its file part, and they are inside the file.
  std::optional<uint64_t> to_offset(uint64_t address, uint64_t size, bool is_code = false) const;
  // Returns the range from `address` to the end of its PT_LOAD's file part, cut at the end of the
  // file. Considers readable segments and, for code, also executable ones.
  std::optional<Extent> rest_of_segment(uint64_t address, bool is_code = false) const;
};

// Reads and checks the ELF header and the program headers. Returns false if nothing further can be
// read; defects may have been added in both cases. *is_elf: whether the magic is there. For a
// 32-bit or big-endian file only e_ident, e_type and e_machine are set.
bool read_headers(ElfFile* elf, bool* is_elf);

// The sections whose headers can be read. Headers may be missing or wrong, so they serve only as
// hints and for what `opdock inspect` shows.
struct Section {
  std::string name;  // truncated to 32 bytes
  Extent extent;     // inside the file
};
std::vector<Section> read_sections(const ElfFile& elf);

std::string hex(uint64_t value);  // "0x1f"

}  // namespace opdock
