// SPDX-License-Identifier: Apache-2.0
#include "image.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <regex>
#include <string_view>

#include "base/sha256.h"
#include "launch.h"
#include "reason.h"

namespace softgpu {
namespace {

uint32_t size_of_type(const std::string& type) {
  if (type.ends_with("64")) return 8;
  if (type.ends_with("32")) return 4;
  if (type.ends_with("16")) return 2;
  return 1;
}

// Reads the parameters of a kernel. Each is at a multiple of its alignment, which is its type's
// unless the text states another.
std::vector<Parameter> ptx_parameters(const std::string& list) {
  static const std::regex pattern(
      R"(\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+(?:\.ptr\s+[^\s,]*\s+(?:\.align\s+\d+\s+)?)?\w+(?:\[(\d+)\])?)");
  std::vector<Parameter> parameters;
  uint32_t offset = 0;
  const auto number = [](const std::ssub_match& digits) {
    return static_cast<uint32_t>(std::stoul(digits));
  };
  for (std::sregex_iterator at(list.begin(), list.end(), pattern), end; at != end; ++at) {
    const uint32_t item = size_of_type((*at)[2]);
    const uint32_t size = (*at)[3].matched ? item * number((*at)[3]) : item;
    const uint32_t alignment = (*at)[1].matched ? number((*at)[1]) : item;
    offset = (offset + alignment - 1) / alignment * alignment;
    parameters.push_back({offset, size});
    offset += size;
  }
  return parameters;
}

// Returns the text of the body that opens at or after `at`, up to its closing brace.
std::string_view body_at(const std::string& text, size_t at) {
  const size_t begin = text.find('{', at);
  if (begin == text.npos) return {};
  int depth = 0;
  for (size_t i = begin; i < text.size(); ++i) {
    if (text[i] == '{') ++depth;
    if (text[i] == '}' && --depth == 0) return std::string_view(text).substr(begin, i - begin);
  }
  return {};
}

// Returns the sizes of the static shared variables of the file and of its kernels by name; the
// names do not clash. Dynamic ones have no size.
std::map<std::string, uint32_t> ptx_shared(const std::string& text) {
  static const std::regex pattern(
      R"(\.shared\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+([\w$]+)(?:\[(\d+)\])?\s*;)");
  std::map<std::string, uint32_t> sizes;
  for (std::sregex_iterator at(text.begin(), text.end(), pattern), end; at != end; ++at) {
    const uint32_t count =
        (*at)[3].matched ? static_cast<uint32_t>(std::stoul((*at)[3])) : uint32_t{1};
    sizes[(*at)[2]] = size_of_type((*at)[1]) * count;
  }
  return sizes;
}

Result read_ptx(const std::string& text, Image* image) {
  std::smatch found;
  static const std::regex version(R"(\.version\s+(\d+)\.(\d+))");
  static const std::regex target(R"(\.target\s+sm_(\d+)([af]?))");
  static const std::regex entry(
      R"(\.entry\s+([\w$]+)\s*\(([^)]*)\)(?:\s*\.maxntid\s+(\d+)(?:,\s*(\d+))?(?:,\s*(\d+))?)?)");
  if (!std::regex_search(text, found, version)) return kInvalidImage;
  image->ptx = true;
  image->ptx_major = std::stoi(found[1]);
  image->ptx_minor = std::stoi(found[2]);
  if (!std::regex_search(text, found, target)) return kInvalidImage;
  const int arch = std::stoi(found[1]);
  image->major = arch / 10;
  image->minor = arch % 10;
  if (found[2].length() > 0) image->suffix = found[2].str()[0];
  image->size = text.size() + 1;
  const std::map<std::string, uint32_t> shared = ptx_shared(text);
  for (std::sregex_iterator at(text.begin(), text.end(), entry), end; at != end; ++at) {
    KernelFacts& kernel = image->kernels[(*at)[1]];
    kernel.parameters = ptx_parameters((*at)[2]);
    kernel.known = true;
    kernel.max_threads = (*at)[3].matched ? 1 : 0;
    const size_t after = static_cast<size_t>(at->position() + at->length());
    const std::string_view body = body_at(text, after);
    for (const auto& [name, size] : shared) {
      if (body.find(name) != body.npos) kernel.static_shared += size;
    }
    for (size_t i = 3; i <= 5; ++i) {
      if ((*at)[i].matched) kernel.max_threads *= static_cast<uint32_t>(std::stoul((*at)[i]));
    }
  }
  return kSuccess;
}

// Returns whether the driver is too old for the PTX ISA. PTX 7.0 came with CUDA 11.0, 8.0 with
// 12.0, 9.0 with 13.0, and one minor version with each minor version, except that 12.6 brought
// none.
bool ptx_too_new(const Image& image, int cuda_version) {
  int minor = cuda_version % 1000 / 10;
  if (cuda_version >= 12060 && cuda_version < 13000) --minor;
  const int known = (cuda_version / 1000 - 4) * 100 + minor;
  return image.ptx_major * 100 + image.ptx_minor > known;
}

bool is_tegra(int arch) {
  return arch == 53 || arch == 62 || arch == 72 || arch == 87 || arch == 101 || arch == 110;
}

// A code object runs only on its own processor and, if it states a feature, only with that setting.
Result check_code_object(const Image& image, const Gpu& gpu) {
  const auto fits = [&](const char* feature, char wanted) {
    const size_t at = gpu.arch.find(feature);
    return wanted == '\0' || at == std::string::npos ||
           gpu.arch[at + std::strlen(feature)] == wanted;
  };
  const bool same = gpu.arch.substr(0, gpu.arch.find(':')) == image.processor;
  return same && fits(":sramecc", image.sramecc) && fits(":xnack", image.xnack) ? kSuccess
                                                                                : kNoBinaryForGpu;
}

// The driver compiles PTX, and its compiler refuses too much static shared memory.
Result check_ptx_shared(const Image& image, const Gpu& gpu) {
  const uint32_t most = most_static_shared(image, gpu);
  for (const auto& [name, kernel] : image.kernels) {
    if (kernel.static_shared <= most) continue;
    explain(kInvalidPtx, name + " has " + std::to_string(kernel.static_shared) +
                             " bytes of static shared memory, more than the " +
                             std::to_string(most) + " of a block");
    return kInvalidPtx;
  }
  return kSuccess;
}

}  // namespace

uint64_t elf_size(const char* base) {
  Elf64_Ehdr header;
  std::memcpy(&header, base, sizeof header);
  uint64_t end = sizeof header;
  if (header.e_shnum > 0) end = header.e_shoff + uint64_t{header.e_shnum} * sizeof(Elf64_Shdr);
  for (int i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr& section = reinterpret_cast<const Elf64_Shdr*>(base + header.e_shoff)[i];
    if (section.sh_type != SHT_NOBITS) end = std::max(end, section.sh_offset + section.sh_size);
  }
  return std::max(end, header.e_phoff + uint64_t{header.e_phnum} * sizeof(Elf64_Phdr));
}

std::string Image::arch() const {
  if (!processor.empty()) {
    std::string text = processor;
    if (sramecc != '\0') text += std::string(":sramecc") + sramecc;
    if (xnack != '\0') text += std::string(":xnack") + xnack;
    return text;
  }
  std::string text = (ptx ? "compute_" : "sm_") + std::to_string(major * 10 + minor);
  return suffix == '\0' ? text : text + suffix;
}

Result read_image(const void* data, bool amd, Image* image) {
  if (!data) return kInvalidValue;
  const char* const base = static_cast<const char*>(data);
  Result result = kInvalidImage;
  if (std::memcmp(base, ELFMAG, SELFMAG) == 0) {
    result = amd ? read_code_object(base, image) : read_cubin(base, image);
  } else if (!amd && (base[0] == '/' || base[0] == '.' || base[0] == '\n')) {
    result = read_ptx(base, image);
  }
  if (result == kSuccess) {
    image->sha256 =
        opdock::to_hex(opdock::sha256({static_cast<const uint8_t*>(data), image->size}));
  }
  return result;
}

Result check_image(const Image& image, const Gpu& gpu) {
  if (gpu.amd) return check_code_object(image, gpu);
  const bool same = image.major == gpu.major && image.minor == gpu.minor;
  const bool older =
      image.major < gpu.major || (image.major == gpu.major && image.minor <= gpu.minor);
  if (image.suffix == 'a' && !same) return kNoBinaryForGpu;
  if (image.ptx) {
    if (!older || (image.suffix == 'f' && image.major != gpu.major)) {
      return kNoBinaryForGpu;
    }
    if (ptx_too_new(image, config().cuda_version)) return kUnsupportedPtxVersion;
    return check_ptx_shared(image, gpu);
  }
  const bool tegra =
      is_tegra(gpu.major * 10 + gpu.minor) || is_tegra(image.major * 10 + image.minor);
  if (image.major != gpu.major || !older || (tegra && !same)) return kNoBinaryForGpu;
  return image.cuda13 && config().cuda_version < 13000 ? kNoBinaryForGpu : kSuccess;
}

}  // namespace softgpu
