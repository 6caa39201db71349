// SPDX-License-Identifier: Apache-2.0
#include "note/image_identity.h"

#include <elf.h>

#include <algorithm>
#include <cctype>
#include <vector>

namespace opdock {
namespace {

constexpr uint16_t kMachineCuda = 190, kMachineAmdgpu = 224;

// Cubins have one of two layouts. Up to CUDA 12 (and Hopper), the lowest byte of e_flags is the
// architecture, bit 11 means suffix `a`, and e_version is the toolkit. In the newer layout, the
// second byte of e_flags is the architecture, and bit 3 means suffix `a`; but CUDA 13 sets that bit
// for no image, so its suffix shows only in .note.nv.tkinfo. Learnt from the cubins of NVRTC 12.9
// and nvcc 13.0.
constexpr unsigned char kOldCubinAbi = 0x33, kNewCubinAbi = 0x41;

uint32_t get_u32(const std::vector<uint8_t>& bytes, size_t at) {
  uint32_t value = 0;
  if (at + 4 <= bytes.size()) std::memcpy(&value, bytes.data() + at, 4);
  return value;
}

// Returns the NUL-terminated text at `at`, or "" if it has no end.
std::string get_text(const std::vector<uint8_t>& bytes, uint64_t at) {
  if (at >= bytes.size()) return {};
  const auto begin = bytes.begin() + static_cast<ptrdiff_t>(at);
  const auto end = std::find(begin, bytes.end(), 0);
  return end == bytes.end() ? std::string() : std::string(begin, end);
}

// Returns "13.0", which follows "release " in "Cuda compilation tools, release 13.0, V13.0.88".
Version release_of(const std::string& text) {
  const size_t at = text.find("release ");
  if (at == std::string::npos) return {};
  const size_t begin = at + 8;
  const size_t end = text.find_first_not_of("0123456789.", begin);
  return Version::parse(text.substr(begin, end - begin)).value_or(Version());
}

// Finds .note.nv.tkinfo by its type, not by its name. Ignores damaged parts: the driver judges the
// rest of a cubin.
void read_cubin_notes(FileReader* reader, uint64_t offset, uint64_t size, const Elf64_Ehdr& header,
                      ImageIdentity* identity) {
  const uint64_t bytes = uint64_t{header.e_shnum} * sizeof(Elf64_Shdr);
  if (header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shoff > size ||
      bytes > size - header.e_shoff) {
    return;
  }
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  if (!reader->read_exactly(offset + header.e_shoff, sections.data(), bytes)) return;
  unsigned looked_at = 0;
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type != SHT_NOTE || section.sh_offset > size ||
        section.sh_size > size - section.sh_offset || section.sh_size > kMaxToolkitNote) {
      continue;
    }
    if (++looked_at > 16) return;
    std::vector<uint8_t> note(section.sh_size);
    if (!reader->read_exactly(offset + section.sh_offset, note.data(), note.size())) return;
    read_toolkit_note(note, identity);
    if (identity->suffix_shown) return;
  }
}

bool read_elf_header(FileReader* reader, uint64_t offset, uint64_t size, uint16_t machine,
                     const char* what, Elf64_Ehdr* header, std::string* problem) {
  if (size < sizeof *header || !reader->read_exactly(offset, header, sizeof *header)) {
    *problem = std::string(what) + " of " + std::to_string(size) + " bytes, less than a header";
    return false;
  }
  if (std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
      header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_machine != machine) {
    *problem = std::string("bytes that are no ") + what;
    return false;
  }
  return true;
}

std::optional<ImageIdentity> identify_cubin(FileReader* reader, uint64_t offset, uint64_t size,
                                            std::string* problem) {
  Elf64_Ehdr header;
  if (!read_elf_header(reader, offset, size, kMachineCuda, "cubin", &header, problem)) {
    return std::nullopt;
  }
  std::optional<ImageIdentity> identity = identify_cubin_header(header, problem);
  if (identity && !identity->arch.empty() && identity->toolkit.empty()) {
    read_cubin_notes(reader, offset, size, header, &*identity);
  }
  return identity;
}

// Returns the word after a directive such as ".target" at the beginning of a line.
std::string directive(const std::string& text, const std::string& name) {
  size_t at = 0;
  while ((at = text.find(name, at)) != std::string::npos) {
    const bool starts_line = at == 0 || text[at - 1] == '\n';
    at += name.size();
    if (!starts_line || at >= text.size() || (text[at] != ' ' && text[at] != '\t')) continue;
    const size_t begin = text.find_first_not_of(" \t", at);
    if (begin == std::string::npos) return {};
    const size_t end = text.find_first_of(" \t\r\n,;", begin);
    return end == std::string::npos ? std::string() : text.substr(begin, end - begin);
  }
  return {};
}

std::optional<ImageIdentity> identify_ptx(FileReader* reader, uint64_t offset, uint64_t size,
                                          std::string* problem) {
  // Comments may precede the directives; NVRTC's take some 200 bytes.
  constexpr uint64_t kLooked = 2048;
  std::string text(static_cast<size_t>(std::min(size, kLooked)), '\0');
  if (!reader->read_exactly(offset, text.data(), text.size())) text.clear();
  const std::string target = directive(text, ".target");
  const std::string number = target.substr(0, 3) == "sm_" ? target.substr(3) : std::string();
  const size_t digits = std::min(number.find_first_not_of("0123456789"), number.size());
  const std::string suffix = number.substr(digits);
  if (directive(text, ".version").empty() || digits < 2 || digits > 4 ||
      (!suffix.empty() && suffix != "a" && suffix != "f")) {
    *problem =
        "PTX without .version and .target sm_… in its first " + std::to_string(kLooked) + " bytes";
    return std::nullopt;
  }
  return ImageIdentity{"compute_" + number, true, {}};
}

// Names for EF_AMDGPU_MACH in LLVM's ELF.h. A number that is not listed leaves the architecture
// unknown, so the list may lack the newest.
std::string gfx_name(unsigned mach) {
  static constexpr struct {
    unsigned mach;
    const char* name;
  } kNames[] = {
      {0x2a, "gfx803"},  {0x2c, "gfx900"},  {0x2d, "gfx902"},  {0x2e, "gfx904"},  {0x2f, "gfx906"},
      {0x30, "gfx908"},  {0x31, "gfx909"},  {0x32, "gfx90c"},  {0x33, "gfx1010"}, {0x34, "gfx1011"},
      {0x35, "gfx1012"}, {0x36, "gfx1030"}, {0x37, "gfx1031"}, {0x38, "gfx1032"}, {0x39, "gfx1033"},
      {0x3d, "gfx1035"}, {0x3e, "gfx1034"}, {0x3f, "gfx90a"},  {0x40, "gfx940"},  {0x41, "gfx1100"},
      {0x42, "gfx1013"}, {0x43, "gfx1150"}, {0x44, "gfx1103"}, {0x45, "gfx1036"}, {0x46, "gfx1101"},
      {0x47, "gfx1102"}, {0x48, "gfx1200"}, {0x4a, "gfx1151"}, {0x4b, "gfx941"},  {0x4c, "gfx942"},
      {0x4e, "gfx1201"}, {0x4f, "gfx950"},  {0x49, "gfx1250"}, {0x55, "gfx1152"}, {0x58, "gfx1153"},
  };
  for (const auto& entry : kNames) {
    if (entry.mach == mach) return entry.name;
  }
  return {};
}

std::optional<ImageIdentity> identify_code_object(FileReader* reader, uint64_t offset,
                                                  uint64_t size, std::string* problem) {
  Elf64_Ehdr header;
  if (!read_elf_header(reader, offset, size, kMachineAmdgpu, "code object", &header, problem)) {
    return std::nullopt;
  }
  ImageIdentity identity;
  identity.arch = gfx_name(header.e_flags & 0xff);
  if (identity.arch.empty()) return identity;
  // Code object version 4 and later have two bits per feature: 1 any, 2 off, 3 on. Earlier versions
  // have one bit: 1 on.
  const bool two_bits = header.e_ident[EI_ABIVERSION] >= 2;
  const auto add = [&](const char* feature, unsigned two, bool one) {
    if (two_bits ? two == 3 : one) identity.arch += std::string(":") + feature + "+";
    if (two_bits && two == 2) identity.arch += std::string(":") + feature + "-";
  };
  add("sramecc", (header.e_flags >> 10) & 3, (header.e_flags & 0x200) != 0);
  add("xnack", (header.e_flags >> 8) & 3, (header.e_flags & 0x100) != 0);
  return identity;
}

}  // namespace

std::optional<ImageIdentity> identify_cubin_header(const Elf64_Ehdr& header, std::string* problem) {
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_machine != kMachineCuda) {
    *problem = "bytes that are no cubin";
    return std::nullopt;
  }
  ImageIdentity identity;
  const unsigned char abi = header.e_ident[EI_OSABI];
  if (abi != kOldCubinAbi && abi != kNewCubinAbi) return identity;  // a newer layout
  const bool old = abi == kOldCubinAbi;
  const unsigned number = old ? header.e_flags & 0xff : (header.e_flags >> 8) & 0xff;
  const bool accelerated = (header.e_flags & (old ? 0x800u : 0x8u)) != 0;
  if (number < 10) {
    *problem = "a cubin for architecture " + std::to_string(number);
    return std::nullopt;
  }
  identity.arch = cuda_arch(ImageKind::kCubin, number, accelerated ? "a" : "");
  identity.suffix_shown = accelerated || old || number < 90;
  if (old && header.e_version >= 30) {
    identity.toolkit = Version{header.e_version / 10, header.e_version % 10};
  }
  return identity;
}

// .note.nv.tkinfo holds six 32-bit words: {version, name, tool, release, build, options}. All but
// the version are offsets of texts from the descriptor's 24th byte; the options contain "-arch
// sm_90a".
void read_toolkit_note(const std::vector<uint8_t>& bytes, ImageIdentity* identity) {
  constexpr size_t kOwnerAt = 12, kDescriptorAt = 24;
  if (get_u32(bytes, 0) != sizeof kToolkitNoteOwner || get_u32(bytes, 8) != kToolkitNoteType) {
    return;
  }
  if (get_text(bytes, kOwnerAt) != kToolkitNoteOwner) return;
  const size_t texts = kDescriptorAt + 24;
  const std::string release = get_text(bytes, texts + uint64_t{get_u32(bytes, kDescriptorAt + 12)});
  const std::string options = get_text(bytes, texts + uint64_t{get_u32(bytes, kDescriptorAt + 20)});
  if (const Version version = release_of(release); !version.empty()) identity->toolkit = version;
  std::string base = identity->arch;
  if (base.ends_with('a') || base.ends_with('f')) base.pop_back();
  const size_t at = options.find(base);
  if (base.empty() || at == std::string::npos) return;
  const char next = at + base.size() < options.size() ? options[at + base.size()] : ' ';
  if (next != ' ' && next != 'a' && next != 'f') return;
  identity->suffix_shown = true;
  if (next != ' ') identity->arch = base + next;
}

std::string cuda_arch(ImageKind kind, unsigned number, std::string_view suffix) {
  return (kind == ImageKind::kPtx ? "compute_" : "sm_") + std::to_string(number) +
         std::string(suffix);
}

std::optional<ImageIdentity> identify_image(FileReader* reader, ImageKind kind, uint64_t offset,
                                            uint64_t size, std::string* problem) {
  switch (kind) {
    case ImageKind::kCubin:
      return identify_cubin(reader, offset, size, problem);
    case ImageKind::kPtx:
      return identify_ptx(reader, offset, size, problem);
    case ImageKind::kCodeObject:
      return identify_code_object(reader, offset, size, problem);
    case ImageKind::kSource:
      return ImageIdentity{};
  }
  return std::nullopt;
}

}  // namespace opdock
