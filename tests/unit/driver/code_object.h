// Builds code objects that contain only their metadata, following LLVM's documentation.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace opdock::testing_support {

template <class T>
void append(std::string* bytes, const T& value) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Builds a code object with two notes, one of another owner and the metadata, reachable by segment
// and by section. mach: a value of EF_AMDGPU_MACH, with any features; 0x3f is gfx90a, 0x36 is
// gfx1030.
inline std::string code_object(const std::string& metadata, uint32_t mach = 0x3f) {
  std::string notes;
  const auto add = [&](std::string owner, std::string text) {
    append(&notes,
           Elf64_Nhdr{static_cast<uint32_t>(owner.size()), static_cast<uint32_t>(text.size()), 32});
    owner.resize((owner.size() + 3) / 4 * 4);
    text.resize((text.size() + 3) / 4 * 4);
    notes += owner + text;
  };
  add(std::string("AMD\0", 4), "another's");
  add(std::string("AMDGPU\0", 7), metadata);
  notes.resize((notes.size() + 7) / 8 * 8);
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_ABIVERSION] = 2;
  header.e_machine = 224;
  header.e_flags = mach | 0x500;  // sramecc and xnack: any
  header.e_phoff = sizeof header;
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = 2;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 2;
  Elf64_Phdr load{}, note{};
  load.p_type = PT_LOAD;
  note.p_type = PT_NOTE;
  note.p_offset = sizeof header + 2 * sizeof note;
  note.p_filesz = notes.size();
  header.e_shoff = note.p_offset + notes.size();
  Elf64_Shdr none{}, section{};
  section.sh_type = SHT_NOTE;
  section.sh_offset = note.p_offset;
  section.sh_size = notes.size();
  std::string image;
  append(&image, header);
  append(&image, load);
  append(&image, note);
  image += notes;
  append(&image, none);
  append(&image, section);
  return image;
}

inline nlohmann::json kernel_arg(unsigned offset, unsigned size, const char* kind) {
  return {{".size", size}, {".value_kind", kind}, {".offset", offset}};
}

inline std::string packed(const nlohmann::json& metadata) {
  const std::vector<uint8_t> bytes = nlohmann::json::to_msgpack(metadata);
  return {bytes.begin(), bytes.end()};
}

}  // namespace opdock::testing_support
