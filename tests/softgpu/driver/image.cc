// SPDX-License-Identifier: Apache-2.0
#include "image.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <regex>
#include <string_view>

#include "base/sha256.h"

namespace softgpu {
namespace {

constexpr uint16_t kMachineCuda = 190;

const Elf64_Shdr* sections_of(const char* base, const Elf64_Ehdr& header) {
  return reinterpret_cast<const Elf64_Shdr*>(base + header.e_shoff);
}

uint64_t elf_size(const char* base, const Elf64_Ehdr& header) {
  uint64_t end = sizeof header;
  if (header.e_shnum > 0) end = header.e_shoff + uint64_t{header.e_shnum} * sizeof(Elf64_Shdr);
  for (int i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr& section = sections_of(base, header)[i];
    if (section.sh_type != SHT_NOBITS) end = std::max(end, section.sh_offset + section.sh_size);
  }
  end = std::max(end, header.e_phoff + uint64_t{header.e_phnum} * sizeof(Elf64_Phdr));
  return end;
}

// .nv.info.<kernel>: records {u8 format, u8 attribute, u16 size or value}; format 4 has `size`
// bytes behind it. Attribute 0x17 is one parameter: u32 index, u16 ordinal, u16 offset, u32 whose
// upper 14 bits are the size.
std::vector<Parameter> parameters_of(const char* info, uint64_t size) {
  std::map<uint16_t, Parameter> by_ordinal;
  for (uint64_t at = 0; at + 4 <= size;) {
    const auto format = static_cast<unsigned char>(info[at]);
    const auto attribute = static_cast<unsigned char>(info[at + 1]);
    uint16_t bytes = 0;
    std::memcpy(&bytes, info + at + 2, 2);
    at += 4;
    if (format != 4) continue;
    if (attribute == 0x17 && bytes >= 12 && at + 12 <= size) {
      uint16_t ordinal = 0, offset = 0;
      uint32_t word = 0;
      std::memcpy(&ordinal, info + at + 4, 2);
      std::memcpy(&offset, info + at + 6, 2);
      std::memcpy(&word, info + at + 8, 4);
      by_ordinal[ordinal] = {offset, word >> 18};
    }
    at += bytes;
  }
  std::vector<Parameter> parameters;
  for (const auto& [ordinal, parameter] : by_ordinal) parameters.push_back(parameter);
  return parameters;
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
          parameters_of(base + sections[i].sh_offset, sections[i].sh_size);
    }
  }
}

// The older layout (ELF ABI 7) keeps the architecture in the lowest byte of e_flags and marks `a`
// by bit 11; the newer one (ABI 8) in the second byte, `a` by bit 3. CUDA 12.9 writes the newer one
// for Blackwell only, so below 10.0 it tells that CUDA 13 made the image.
CUresult read_cubin(const char* base, Image* image) {
  Elf64_Ehdr header;
  std::memcpy(&header, base, sizeof header);
  if (header.e_machine != kMachineCuda) return CUDA_ERROR_INVALID_IMAGE;
  const bool newer = header.e_ident[EI_ABIVERSION] >= 8;
  const unsigned arch = newer ? header.e_flags >> 8 & 0xff : header.e_flags & 0xff;
  if ((header.e_flags & (newer ? 0x8u : 0x800u)) != 0) image->suffix = 'a';
  image->cuda13 = newer && arch < 100;
  image->major = static_cast<int>(arch / 10);
  image->minor = static_cast<int>(arch % 10);
  image->size = elf_size(base, header);
  read_kernels(base, header, image);
  return CUDA_SUCCESS;
}

uint32_t size_of_type(const std::string& type) {
  if (type.ends_with("64")) return 8;
  if (type.ends_with("32")) return 4;
  if (type.ends_with("16")) return 2;
  return 1;
}

std::vector<Parameter> ptx_parameters(const std::string& list) {
  static const std::regex pattern(
      R"(\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+(?:\.ptr\s+[^\s,]*\s+(?:\.align\s+\d+\s+)?)?\w+(?:\[(\d+)\])?)");
  std::vector<Parameter> parameters;
  for (std::sregex_iterator at(list.begin(), list.end(), pattern), end; at != end; ++at) {
    const uint32_t item = size_of_type((*at)[1]);
    const uint32_t size =
        (*at)[2].matched ? item * static_cast<uint32_t>(std::stoul((*at)[2])) : item;
    parameters.push_back({0, size});
  }
  return parameters;
}

CUresult read_ptx(const std::string& text, Image* image) {
  std::smatch found;
  static const std::regex version(R"(\.version\s+(\d+)\.(\d+))");
  static const std::regex target(R"(\.target\s+sm_(\d+)([af]?))");
  static const std::regex entry(R"(\.entry\s+([\w$]+)\s*\(([^)]*)\))");
  if (!std::regex_search(text, found, version)) return CUDA_ERROR_INVALID_IMAGE;
  image->ptx = true;
  image->ptx_major = std::stoi(found[1]);
  image->ptx_minor = std::stoi(found[2]);
  if (!std::regex_search(text, found, target)) return CUDA_ERROR_INVALID_IMAGE;
  const int arch = std::stoi(found[1]);
  image->major = arch / 10;
  image->minor = arch % 10;
  if (found[2].length() > 0) image->suffix = found[2].str()[0];
  image->size = text.size() + 1;
  for (std::sregex_iterator at(text.begin(), text.end(), entry), end; at != end; ++at) {
    image->kernels[(*at)[1]] = ptx_parameters((*at)[2]);
  }
  return CUDA_SUCCESS;
}

// The newest PTX ISA that a driver knows: 7.0 came with CUDA 11.0, 8.0 with 12.0, 9.0 with 13.0,
// and one minor with each minor, except that 12.6 brought none.
bool ptx_too_new(const Image& image, int cuda_version) {
  int minor = cuda_version % 1000 / 10;
  if (cuda_version >= 12060 && cuda_version < 13000) --minor;
  const int known = (cuda_version / 1000 - 4) * 100 + minor;
  return image.ptx_major * 100 + image.ptx_minor > known;
}

bool is_tegra(int arch) {
  return arch == 53 || arch == 62 || arch == 72 || arch == 87 || arch == 101 || arch == 110;
}

}  // namespace

CUresult read_image(const void* data, Image* image) {
  if (!data) return CUDA_ERROR_INVALID_VALUE;
  const char* const base = static_cast<const char*>(data);
  CUresult result = CUDA_ERROR_INVALID_IMAGE;
  if (std::memcmp(base, ELFMAG, SELFMAG) == 0) {
    result = read_cubin(base, image);
  } else if (base[0] == '/' || base[0] == '.' || base[0] == '\n') {
    result = read_ptx(base, image);
  }
  if (result == CUDA_SUCCESS) {
    image->sha256 =
        opdock::to_hex(opdock::sha256({static_cast<const uint8_t*>(data), image->size}));
  }
  return result;
}

CUresult check_image(const Image& image, const Gpu& gpu, int cuda_version) {
  const bool same = image.major == gpu.major && image.minor == gpu.minor;
  const bool older =
      image.major < gpu.major || (image.major == gpu.major && image.minor <= gpu.minor);
  if (image.suffix == 'a' && !same) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  if (image.ptx) {
    if (!older || (image.suffix == 'f' && image.major != gpu.major)) {
      return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    return ptx_too_new(image, cuda_version) ? CUDA_ERROR_UNSUPPORTED_PTX_VERSION : CUDA_SUCCESS;
  }
  const bool tegra =
      is_tegra(gpu.major * 10 + gpu.minor) || is_tegra(image.major * 10 + image.minor);
  if (image.major != gpu.major || !older || (tegra && !same)) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  return image.cuda13 && cuda_version < 13000 ? CUDA_ERROR_NO_BINARY_FOR_GPU : CUDA_SUCCESS;
}

}  // namespace softgpu
