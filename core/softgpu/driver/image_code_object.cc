// Reads AMD's code objects: ELF files with a note in msgpack that describes the kernels.
// SPDX-License-Identifier: Apache-2.0
#include <elf.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>

#include "image.h"

namespace softgpu {
namespace {

constexpr uint16_t kMachineAmdgpu = 224;
constexpr uint32_t kMetadata = 32;  // NT_AMDGPU_METADATA

// Values of EF_AMDGPU_MACH, the lowest byte of e_flags.
constexpr struct {
  unsigned number;
  const char* name;
} kProcessors[] = {
    {0x2c, "gfx900"},  {0x2f, "gfx906"},  {0x30, "gfx908"},  {0x32, "gfx90c"},  {0x33, "gfx1010"},
    {0x35, "gfx1012"}, {0x36, "gfx1030"}, {0x37, "gfx1031"}, {0x38, "gfx1032"}, {0x3d, "gfx1035"},
    {0x3e, "gfx1034"}, {0x3f, "gfx90a"},  {0x40, "gfx940"},  {0x41, "gfx1100"}, {0x44, "gfx1103"},
    {0x45, "gfx1036"}, {0x46, "gfx1101"}, {0x47, "gfx1102"}, {0x48, "gfx1200"}, {0x4b, "gfx941"},
    {0x4c, "gfx942"},  {0x4e, "gfx1201"}, {0x4f, "gfx950"},
};

// Reads a target ID's feature. Code object version 4 and later (ELF ABI version 2) use two bits: 2
// is off, 3 is on. Older versions use one bit: 1 is on.
char feature(const Elf64_Ehdr& header, unsigned shift, unsigned old_bit) {
  if (header.e_ident[EI_ABIVERSION] < 2) return (header.e_flags & old_bit) != 0 ? '+' : '\0';
  const unsigned bits = header.e_flags >> shift & 3;
  return bits == 3 ? '+' : bits == 2 ? '-' : '\0';
}

void read_kernel(const nlohmann::json& from, Image* image) {
  KernelFacts kernel;
  kernel.known = true;
  kernel.max_threads = from.value(".max_flat_workgroup_size", 0u);
  kernel.static_shared = from.value(".group_segment_fixed_size", 0u);
  for (const nlohmann::json& argument : from.value(".args", nlohmann::json::array())) {
    const std::string kind = argument.value(".value_kind", "");
    if (kind.starts_with("hidden_")) continue;  // the caller does not pass these
    kernel.parameters.push_back({argument.at(".offset"), argument.at(".size")});
  }
  image->kernels[from.at(".name").get<std::string>()] = kernel;
}

void read_notes(const char* notes, uint64_t size, Image* image) {
  for (uint64_t at = 0; at + sizeof(Elf64_Nhdr) <= size;) {
    Elf64_Nhdr note;
    std::memcpy(&note, notes + at, sizeof note);
    const char* const name = notes + at + sizeof note;
    const char* const text = name + (note.n_namesz + 3) / 4 * 4;
    if (note.n_type == kMetadata && std::string_view(name) == "AMDGPU") {
      const auto facts = nlohmann::json::from_msgpack(text, text + note.n_descsz, true, false);
      if (!facts.is_object()) return;
      for (const auto& kernel : facts.value("amdhsa.kernels", nlohmann::json::array())) {
        read_kernel(kernel, image);
      }
    }
    at = static_cast<uint64_t>(text - notes) + (note.n_descsz + 3) / 4 * 4;
  }
}

// A kernel NAME has the function NAME and the descriptor NAME.kd.
void read_symbols(const char* base, const Elf64_Shdr* sections, const Elf64_Shdr& table,
                  Image* image) {
  constexpr std::string_view kDescriptor = ".kd";
  const char* const names = base + sections[table.sh_link].sh_offset;
  for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= table.sh_size; at += sizeof(Elf64_Sym)) {
    Elf64_Sym symbol;
    std::memcpy(&symbol, base + table.sh_offset + at, sizeof symbol);
    const std::string_view name = names + symbol.st_name;
    if (!name.ends_with(kDescriptor)) continue;
    image->kernels[std::string(name.substr(0, name.size() - kDescriptor.size()))];
  }
}

}  // namespace

Result read_code_object(const char* base, Image* image) {
  Elf64_Ehdr header;
  std::memcpy(&header, base, sizeof header);
  if (header.e_machine != kMachineAmdgpu) return kInvalidImage;
  for (const auto& processor : kProcessors) {
    if (processor.number == (header.e_flags & 0xff)) image->processor = processor.name;
  }
  if (image->processor.empty()) return kInvalidImage;
  image->xnack = feature(header, 8, 0x100);
  image->sramecc = feature(header, 10, 0x200);
  image->size = elf_size(base);
  image->any_kernel = header.e_shnum == 0;
  const auto* const sections = reinterpret_cast<const Elf64_Shdr*>(base + header.e_shoff);
  try {
    for (int i = 0; i < header.e_shnum; ++i) {
      const Elf64_Shdr& section = sections[i];
      if (section.sh_type == SHT_DYNSYM) read_symbols(base, sections, section, image);
      if (section.sh_type == SHT_NOTE) read_notes(base + section.sh_offset, section.sh_size, image);
    }
  } catch (const nlohmann::json::exception&) {
    return kInvalidImage;  // a note without the expected members
  }
  return kSuccess;
}

}  // namespace softgpu
