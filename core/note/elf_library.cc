// SPDX-License-Identifier: Apache-2.0
#include "note/elf_library.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

#include "note/machine_name.h"

namespace opdock {
namespace {

constexpr uint32_t kPropertyType = 5;  // NT_GNU_PROPERTY_TYPE_0
constexpr uint32_t kPropertySegment = 0x6474e553;
constexpr uint32_t kCpuLevelNeeded = 0xc0008002;  // GNU_PROPERTY_X86_ISA_1_NEEDED
constexpr uint64_t kMaxPropertyBytes = 65536;

// Returns the level of the highest bit: bit 0 is the baseline, 1 is v2, 2 is v3, 3 is v4.
int level_of(uint32_t bits) {
  int level = 0;
  for (; bits != 0; bits >>= 1) ++level;
  return level;
}

// Reads the properties in one descriptor: each has a type, a size, and data padded to 8 bytes.
int level_in(const uint8_t* at, size_t size) {
  int level = 0;
  while (size >= 8) {
    uint32_t head[2], bits = 0;
    std::memcpy(head, at, sizeof head);
    const size_t whole = 8 + (size_t{head[1]} + 7) / 8 * 8;
    if (head[0] == kCpuLevelNeeded && head[1] == sizeof bits && size >= 12) {
      std::memcpy(&bits, at + 8, sizeof bits);
      level = std::max(level, level_of(bits));
    }
    if (whole > size) break;
    at += whole;
    size -= whole;
  }
  return level;
}

// Source: "System V ABI, AMD64 supplement", the section on program properties.
int read_cpu_level(const ElfFile& elf) {
  if (elf.header.e_machine != EM_X86_64) return 0;
  const Elf64_Phdr* found = nullptr;
  for (const Elf64_Phdr& segment : elf.segments) {
    if (segment.p_type == kPropertySegment) found = &segment;
    if (found == nullptr && segment.p_type == PT_NOTE && segment.p_align == 8) found = &segment;
  }
  if (found == nullptr || found->p_filesz > kMaxPropertyBytes) return 0;
  std::vector<uint8_t> bytes(static_cast<size_t>(found->p_filesz));
  if (!elf.reader->read(found->p_offset, bytes.data(), bytes.size())) return 0;
  int level = 0;
  for (size_t at = 0; bytes.size() - at >= sizeof(Elf64_Nhdr) + 4;) {
    Elf64_Nhdr note;
    std::memcpy(&note, bytes.data() + at, sizeof note);
    const size_t name = at + sizeof note, begin = (name + note.n_namesz + 7) / 8 * 8;
    if (begin > bytes.size() || note.n_descsz > bytes.size() - begin) break;
    if (note.n_type == kPropertyType && note.n_namesz == 4 &&
        std::memcmp(bytes.data() + name, "GNU", 4) == 0) {
      level = std::max(level, level_in(bytes.data() + begin, note.n_descsz));
    }
    at = std::min(bytes.size(), begin + (size_t{note.n_descsz} + 7) / 8 * 8);
  }
  return level;
}

// Returns whether a relocation of this type may occur in a shared object. Sources: the tables of
// relocations in "System V ABI, AMD64 supplement" and "ELF for the Arm 64-bit Architecture".
bool is_known_relocation(uint16_t machine, uint32_t type) {
  if (machine == EM_X86_64) {
    return type <= R_X86_64_RELATIVE || type == R_X86_64_32 ||
           (type >= R_X86_64_DTPMOD64 && type <= R_X86_64_TPOFF64) || type == R_X86_64_PC64 ||
           type == R_X86_64_SIZE32 || type == R_X86_64_SIZE64 ||
           (type >= R_X86_64_TLSDESC && type <= R_X86_64_RELATIVE64);
  }
  if (machine != EM_AARCH64) return true;
  return type == R_AARCH64_NONE || type == R_AARCH64_ABS64 || type == R_AARCH64_ABS32 ||
         (type >= R_AARCH64_COPY && type <= R_AARCH64_IRELATIVE);
}

// Calls `visit` for each relocation until it returns true. Returns false if a relocation cannot be
// read.
template <typename Visit>
bool visit_relocations(const ElfFile& elf, const Dynamic& dynamic, Visit visit) {
  constexpr size_t kAtOnce = 4096;
  std::vector<Elf64_Rela> pieces;
  for (const auto& [address, size] : dynamic.relocations) {
    const uint64_t count = size / sizeof(Elf64_Rela);
    if (count == 0) continue;
    const std::optional<uint64_t> offset = elf.to_offset(address, size);
    if (!offset) return false;
    for (uint64_t at = 0; at < count; at += pieces.size()) {
      // Entries in a hole of the file are zeros, which carry no information: one stands for all.
      const uint64_t begin = *offset + at * sizeof(Elf64_Rela);
      const uint64_t skipped = (elf.reader->next_data(begin) - begin) / sizeof(Elf64_Rela);
      if (skipped > 1) {
        if (visit(Elf64_Rela{})) return true;
        at += skipped;
        if (at >= count) break;
      }
      pieces.resize(static_cast<size_t>(std::min<uint64_t>(kAtOnce, count - at)));
      if (!elf.reader->read(*offset + at * sizeof(Elf64_Rela), pieces.data(),
                            pieces.size() * sizeof(Elf64_Rela))) {
        return false;
      }
      for (const Elf64_Rela& relocation : pieces) {
        if (visit(relocation)) return true;
      }
    }
  }
  return true;
}

// Returns whether the loader may write a word at that address.
bool can_be_relocated(const ElfFile& elf, const Dynamic& dynamic, uint64_t at) {
  return std::any_of(elf.segments.begin(), elf.segments.end(), [&](const Elf64_Phdr& segment) {
    return segment.p_type == PT_LOAD && at >= segment.p_vaddr &&
           at - segment.p_vaddr < segment.p_memsz &&
           ((segment.p_flags & PF_W) != 0 || dynamic.text_relocations);
  });
}

bool is_code(const ElfFile& elf, uint64_t at) {
  return std::any_of(elf.segments.begin(), elf.segments.end(), [&](const Elf64_Phdr& segment) {
    return segment.p_type == PT_LOAD && (segment.p_flags & PF_X) != 0 && at >= segment.p_vaddr &&
           at - segment.p_vaddr < segment.p_filesz;
  });
}

// DT_RELR: an even entry is an address; an odd one is a bitmap of the 63 words that follow the
// words covered so far.
void check_relative_table(const ElfFile& elf, const Dynamic& dynamic) {
  constexpr uint64_t kWord = sizeof(uint64_t), kWords = 63, kAtOnce = 4096;
  const auto [address, size] = dynamic.relative_table;
  const std::optional<uint64_t> offset = elf.to_offset(address, size);
  if (!offset) return;  // check_tables has reported it
  std::vector<uint64_t> entries;
  uint64_t next = 0;
  for (uint64_t at = 0; at < size / kWord; at += entries.size()) {
    entries.resize(static_cast<size_t>(std::min(kAtOnce, size / kWord - at)));
    if (!elf.reader->read(*offset + at * kWord, entries.data(), entries.size() * kWord)) return;
    for (const uint64_t entry : entries) {
      const bool is_map = (entry & 1) != 0;
      const uint64_t map = is_map ? entry >> 1 : 1, from = is_map ? next : entry;
      next = from + kWord * (is_map ? kWords : 1);
      if (map == 0) continue;
      const uint64_t first = from + kWord * static_cast<unsigned>(std::countr_zero(map));
      const uint64_t last = from + kWord * (63u - static_cast<unsigned>(std::countl_zero(map)));
      if (can_be_relocated(elf, dynamic, first) && can_be_relocated(elf, dynamic, last)) continue;
      elf.defects->add(Code::kElfMalformed,
                       "relative relocations of addresses " + hex(first) + " to " + hex(last),
                       "addresses in a segment that is loaded and can be written");
      return;
    }
  }
}

// Checks indirect functions (STT_GNU_IFUNC): the loader runs them while it binds symbols, so their
// addresses must be code.
void check_indirect(const ElfFile& elf, const SymbolTable& symbols) {
  if (elf.header.e_machine != kThisMachine) return;
  symbols.for_each([&](const Elf64_Sym& symbol, std::string_view name) {
    if (ELF64_ST_TYPE(symbol.st_info) != STT_GNU_IFUNC || symbol.st_shndx == SHN_UNDEF) return;
    if (is_code(elf, symbol.st_value)) return;
    elf.defects->add(Code::kElfMalformed,
                     "the indirect function " + std::string(name) + " at " + hex(symbol.st_value),
                     "an address of code");
  });
}

void read_static_tls(const ElfFile& elf, Library* library) {
  bool wants_tls = library->tls_size != 0;
  library->symbols.for_each_wanted(
      [&](const WantedSymbol& wanted) { wants_tls = wants_tls || wanted.is_tls; });
  if (!wants_tls) return;
  std::set<uint32_t> seen;
  visit_relocations(elf, library->dynamic, [&](const Elf64_Rela& relocation) {
    const uint64_t type = ELF64_R_TYPE(relocation.r_info);
    const bool is_fixed = elf.header.e_machine == EM_X86_64
                              ? type == R_X86_64_TPOFF64 || type == R_X86_64_TPOFF32
                              : type == R_AARCH64_TLS_TPREL;
    const auto index = static_cast<uint32_t>(ELF64_R_SYM(relocation.r_info));
    if (!is_fixed || !seen.insert(index).second) return false;
    if (library->symbols.wanted_at(index)) {
      library->fixes_tls_of.push_back(index);
    } else {
      library->fixes_own_tls = true;
    }
    return false;
  });
}

}  // namespace

bool wants_executable_stack(const ElfFile& elf) {
  for (const Elf64_Phdr& segment : elf.segments) {
    if (segment.p_type == PT_GNU_STACK) return (segment.p_flags & PF_X) != 0;
  }
  return elf.header.e_machine != EM_AARCH64;
}

Library read_library(const ElfFile& elf, Dynamic dynamic, const std::string& path) {
  Library library;
  library.path = path;
  library.is_elf = true;
  library.machine = elf.header.e_machine;
  library.symbols = SymbolTable::read(elf, dynamic);
  library.dynamic = std::move(dynamic);
  library.cpu_level = read_cpu_level(elf);
  for (const Elf64_Phdr& segment : elf.segments) {
    if (segment.p_type != PT_TLS) continue;
    library.tls_size = segment.p_memsz;
    library.tls_align = std::max<uint64_t>(1, segment.p_align);
  }
  read_static_tls(elf, &library);
  check_indirect(elf, library.symbols);
  return library;
}

void check_relocations(const ElfFile& elf, const Dynamic& dynamic) {
  if (elf.header.e_machine != kThisMachine) return;
  if (dynamic.relative) check_relative_table(elf, dynamic);
  const std::optional<Extent> symbols = elf.rest_of_segment(dynamic.symbols);
  const uint64_t most_symbols = symbols ? symbols->size / sizeof(Elf64_Sym) : 0;
  uint64_t num_relative = dynamic.num_relative;
  visit_relocations(elf, dynamic, [&](const Elf64_Rela& relocation) {
    const uint32_t type = static_cast<uint32_t>(ELF64_R_TYPE(relocation.r_info));
    const auto malformed = [&](std::string found, const char* wanted) {
      elf.defects->add(Code::kElfMalformed, std::move(found), wanted);
      return true;
    };
    if (!is_known_relocation(elf.header.e_machine, type)) {
      return malformed("a relocation of type " + std::to_string(type),
                       "those that the loader knows");
    }
    const uint32_t relative =
        elf.header.e_machine == EM_X86_64 ? R_X86_64_RELATIVE : R_AARCH64_RELATIVE;
    if (num_relative != 0 && type != relative) {
      return malformed(std::to_string(num_relative) + " relative relocations too few",
                       "as many as DT_RELACOUNT says");
    }
    if (num_relative != 0) --num_relative;
    const uint64_t symbol = ELF64_R_SYM(relocation.r_info);
    if (symbol != 0 && symbol >= most_symbols) {
      return malformed("a relocation for symbol " + std::to_string(symbol),
                       "one in the symbol table");
    }
    const uint32_t indirect =
        elf.header.e_machine == EM_X86_64 ? R_X86_64_IRELATIVE : R_AARCH64_IRELATIVE;
    const auto resolver = static_cast<uint64_t>(relocation.r_addend);
    if (type == indirect && !is_code(elf, resolver)) {
      return malformed("a function that picks another one at address " + hex(resolver),
                       "an address of code");
    }
    const uint64_t at = relocation.r_offset;
    if (type == 0 || can_be_relocated(elf, dynamic, at)) return false;
    return malformed("a relocation of address " + hex(at),
                     "an address in a segment that is loaded and can be written");
  });
}

std::vector<uint32_t> relocated_symbols(const ElfFile& elf, const Dynamic& dynamic,
                                        const std::vector<uint32_t>& indices) {
  std::set<uint32_t> open(indices.begin(), indices.end());
  std::vector<uint32_t> found;
  const bool read = visit_relocations(elf, dynamic, [&](const Elf64_Rela& relocation) {
    const auto symbol = static_cast<uint32_t>(ELF64_R_SYM(relocation.r_info));
    if (open.erase(symbol) != 0) found.push_back(symbol);
    return open.empty();
  });
  if (!read) return indices;
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace opdock
