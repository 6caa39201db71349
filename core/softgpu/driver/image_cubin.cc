// Reads cubins, NVIDIA's ELF files.
// SPDX-License-Identifier: Apache-2.0
#include <elf.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "image.h"

namespace softgpu {
namespace {

constexpr uint16_t kMachineCuda = 190;

const Elf64_Shdr* sections_of(const char* base, const Elf64_Ehdr& header) {
  return reinterpret_cast<const Elf64_Shdr*>(base + header.e_shoff);
}

// Reads .nv.info.<kernel>, which consists of records {u8 format, u8 attribute, u16 size or value}.
// A record of format 4 is followed by `size` bytes. Attribute 0x17 is one parameter: u32 index, u16
// ordinal, u16 offset, u32 whose upper 14 bits are the size; 0x05 is the launch bound: u32 x, y, z.
KernelFacts facts_of(const char* info, uint64_t size) {
  constexpr unsigned kParameter = 0x17, kMaxThreads = 0x05;
  KernelFacts kernel;
  kernel.known = true;
  std::map<uint16_t, Parameter> by_ordinal;
  for (uint64_t at = 0; at + 4 <= size;) {
    const auto format = static_cast<unsigned char>(info[at]);
    const auto attribute = static_cast<unsigned char>(info[at + 1]);
    uint16_t bytes = 0;
    std::memcpy(&bytes, info + at + 2, 2);
    at += 4;
    if (format != 4) continue;
    const bool whole = bytes >= 12 && at + 12 <= size;
    if (attribute == kParameter && whole) {
      uint16_t ordinal = 0, offset = 0;
      uint32_t word = 0;
      std::memcpy(&ordinal, info + at + 4, 2);
      std::memcpy(&offset, info + at + 6, 2);
      std::memcpy(&word, info + at + 8, 4);
      by_ordinal[ordinal] = {offset, word >> 18};
    } else if (attribute == kMaxThreads && whole) {
      uint32_t most[3];
      std::memcpy(most, info + at, sizeof most);
      kernel.max_threads = most[0] * most[1] * most[2];
    }
    at += bytes;
  }
  for (const auto& [ordinal, parameter] : by_ordinal) kernel.parameters.push_back(parameter);
  return kernel;
}

// Reads the sizes of .nv.shared.<kernel>, a section without bytes in the file. Its size is the
// kernel's static shared memory; from sm_90 on, 1 KiB that the system reserves is included.
void read_static_shared(const char* names, const Elf64_Shdr* sections, int count, Image* image) {
  constexpr std::string_view kShared = ".nv.shared.";
  const uint64_t systems = image->major >= 9 ? 1024 : 0;
  for (int i = 0; i < count; ++i) {
    const std::string_view name = names + sections[i].sh_name;
    if (!name.starts_with(kShared)) continue;
    const auto kernel = image->kernels.find(std::string(name.substr(kShared.size())));
    if (kernel == image->kernels.end()) continue;  // a section that the system reserves
    kernel->second.static_shared =
        static_cast<uint32_t>(std::max(sections[i].sh_size, systems) - systems);
  }
}

void read_kernels(const char* base, const Elf64_Ehdr& header, Image* image) {
  if (header.e_shnum == 0 || header.e_shstrndx >= header.e_shnum) {
    image->any_kernel = true;
    return;
  }
  const Elf64_Shdr* const sections = sections_of(base, header);
  const char* const names = base + sections[header.e_shstrndx].sh_offset;
  for (int i = 0; i < header.e_shnum; ++i) {
    const std::string_view name = names + sections[i].sh_name;
    constexpr std::string_view kText = ".text.", kInfo = ".nv.info.";
    if (name.starts_with(kText)) image->kernels[std::string(name.substr(kText.size()))];
    if (name.starts_with(kInfo)) {
      image->kernels[std::string(name.substr(kInfo.size()))] =
          facts_of(base + sections[i].sh_offset, sections[i].sh_size);
    }
  }
  read_static_shared(names, sections, header.e_shnum, image);
}

}  // namespace

// The older layout (ELF ABI 7) keeps the architecture in the lowest byte of e_flags and marks the
// suffix `a` by bit 11; the newer one (ABI 8) keeps it in the second byte and marks `a` by bit 3.
// CUDA 12.9 writes the newer layout only for Blackwell, so below 10.0 it means that CUDA 13 made
// the image.
Result read_cubin(const char* base, Image* image) {
  Elf64_Ehdr header;
  std::memcpy(&header, base, sizeof header);
  if (header.e_machine != kMachineCuda) return kInvalidImage;
  const bool newer = header.e_ident[EI_ABIVERSION] >= 8;
  const unsigned arch = newer ? header.e_flags >> 8 & 0xff : header.e_flags & 0xff;
  if ((header.e_flags & (newer ? 0x8u : 0x800u)) != 0) image->suffix = 'a';
  image->cuda13 = newer && arch < 100;
  image->major = static_cast<int>(arch / 10);
  image->minor = static_cast<int>(arch % 10);
  image->size = elf_size(base);
  read_kernels(base, header, image);
  return kSuccess;
}

}  // namespace softgpu
