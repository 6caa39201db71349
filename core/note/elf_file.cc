// Reads the ELF header and the program headers.
// SPDX-License-Identifier: Apache-2.0
#include "note/elf_file.h"

#include <gnu/libc-version.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "base/version.h"
#include "note/file_kind.h"
#include "note/image_identity.h"
#include "note/machine_name.h"

namespace opdock {
namespace {

// The end of user space on x86-64 and aarch64 (47 or 48 bits); the limit also prevents sums from
// wrapping.
constexpr uint64_t kAddressLimit = uint64_t{1} << 48;
constexpr uint64_t kSmallestPage = 4096;
constexpr unsigned kMaxSegments = 1024;  // real files have about ten

// Describes the files that a verdict is about, for messages about files of other kinds.
std::string wanted_file() {
  return "a 64-bit little-endian " + machine_name(kThisMachine) + " file";
}

// Describes a file of another class or byte order; the first fields of its header have the same
// layout.
void name_foreign(ElfFile* elf, const unsigned char* identity) {
  struct {
    uint16_t type, machine;
  } head;
  if (!elf->reader->read(EI_NIDENT, &head)) return;
  const bool is_64_bit = identity[EI_CLASS] == ELFCLASS64;
  const bool is_big_endian = identity[EI_DATA] == ELFDATA2MSB;
  std::memcpy(elf->header.e_ident, identity, EI_NIDENT);
  elf->header.e_type = is_big_endian ? __builtin_bswap16(head.type) : head.type;
  elf->header.e_machine = is_big_endian ? __builtin_bswap16(head.machine) : head.machine;
  elf->defects->add(Code::kElfClass,
                    std::string(is_big_endian ? "a big-endian " : "a ") +
                        (is_64_bit ? "64-bit " : "32-bit ") +
                        machine_name(elf->header.e_machine, is_64_bit, is_big_endian) + " file",
                    wanted_file());
}

bool check_identity(ElfFile* elf, bool* is_elf) {
  Defects& defects = *elf->defects;
  const uint64_t size = elf->reader->size();
  if (size == 0) {
    defects.add(Code::kFileEmpty, "0 bytes", "a shared object");
    return false;
  }
  unsigned char identity[EI_NIDENT] = {};
  const size_t have = static_cast<size_t>(std::min<uint64_t>(size, EI_NIDENT));
  if (!elf->reader->read(0, identity, have)) return false;
  if (std::memcmp(identity, ELFMAG, SELFMAG) != 0) {
    FileKind kind = file_kind(elf->reader);
    defects.add(Code::kNotElf, std::move(kind.found), "an ELF shared object", kind.advice);
    return false;
  }
  *is_elf = true;
  if (size < sizeof(Elf64_Ehdr)) {
    defects.add(Code::kElfTruncated, "a file of " + std::to_string(size) + " bytes",
                "an ELF header of " + std::to_string(sizeof(Elf64_Ehdr)));
    return false;
  }
  const auto wrong = [&](const char* what, unsigned found, const char* wanted) {
    defects.add(Code::kElfClass, std::string(what) + " " + std::to_string(found), wanted);
    return false;
  };
  const unsigned bits = identity[EI_CLASS], order = identity[EI_DATA];
  if (bits != ELFCLASS64 && bits != ELFCLASS32) return wrong("class", bits, "2 (64 bits)");
  if (order != ELFDATA2LSB && order != ELFDATA2MSB) {
    return wrong("byte order", order, "1 (little-endian)");
  }
  if (identity[EI_VERSION] != EV_CURRENT) return wrong("version", identity[EI_VERSION], "1");
  if (bits == ELFCLASS64 && order == ELFDATA2LSB) return true;
  name_foreign(elf, identity);
  return false;
}

// Recognises a bare cubin or code object, which is also an ELF file, and adds a defect.
bool is_gpu_code(ElfFile* elf) {
  const bool is_cuda = elf->header.e_machine == EM_CUDA;
  if (!is_cuda && elf->header.e_machine != EM_AMDGPU) return false;
  std::string problem;
  const std::optional<ImageIdentity> shown =
      identify_image(elf->reader, is_cuda ? ImageKind::kCubin : ImageKind::kCodeObject, 0,
                     elf->reader->size(), &problem);
  std::string found = is_cuda ? "a CUDA cubin" : "an AMD GPU code object";
  if (shown && !shown->arch.empty()) found += " (" + shown->arch + ")";
  elf->defects->add(Code::kElfMachine, std::move(found), wanted_file(),
                    "pack it into a plugin with opdock-pack");
  return true;
}

// Returns false if the rest of the file is not laid out for loading.
bool check_header(ElfFile* elf) {
  Defects& defects = *elf->defects;
  const Elf64_Ehdr& header = elf->header;
  if (header.e_version != EV_CURRENT) {
    defects.add(Code::kElfClass, "version " + std::to_string(header.e_version), "1");
  }
  const unsigned abi = header.e_ident[EI_OSABI];
  if (abi != ELFOSABI_SYSV && abi != ELFOSABI_GNU) {
    defects.add(Code::kElfAbi, "OS ABI " + std::to_string(abi), "0 (System V) or 3 (GNU)");
  }
  // The greatest ABI version that glibc loads; linkers write 0.
  const unsigned most_version = abi == ELFOSABI_GNU ? 3 : 0;
  const unsigned version = header.e_ident[EI_ABIVERSION];
  if (version > most_version) {
    defects.add(Code::kElfAbi, "ABI version " + std::to_string(version),
                "at most " + std::to_string(most_version) + " for that OS ABI");
  }
  if (std::any_of(header.e_ident + EI_PAD, header.e_ident + EI_NIDENT,
                  [](unsigned char byte) { return byte != 0; })) {
    defects.add(Code::kElfMalformed, "padding in the head that is not 0", "zeros");
  }
  if (header.e_type == ET_DYN) return true;
  static constexpr const char* kNames[] = {"no type", "an object file (.o)", "an executable",
                                           "a shared object", "a core dump"};
  const std::string found = header.e_type < std::size(kNames)
                                ? kNames[header.e_type]
                                : "type " + std::to_string(header.e_type);
  defects.add(Code::kElfType, found, "a shared object (ET_DYN)",
              header.e_type == ET_CORE ? "put the shared object itself there" : "");
  return header.e_type != ET_REL && header.e_type != ET_CORE;
}

bool read_segments(ElfFile* elf) {
  Defects& defects = *elf->defects;
  const Elf64_Ehdr& header = elf->header;
  if (header.e_phnum == 0 || header.e_phnum > kMaxSegments) {
    defects.add(Code::kElfMalformed, std::to_string(header.e_phnum) + " program headers",
                "1 to " + std::to_string(kMaxSegments));
    return false;
  }
  if (header.e_phentsize != sizeof(Elf64_Phdr)) {
    defects.add(Code::kElfMalformed,
                "program headers of " + std::to_string(header.e_phentsize) + " bytes",
                std::to_string(sizeof(Elf64_Phdr)));
    return false;
  }
  const uint64_t bytes = uint64_t{header.e_phnum} * sizeof(Elf64_Phdr);
  if (!elf->reader->contains(header.e_phoff, bytes)) {
    defects.add(
        Code::kElfTruncated,
        "program headers at " + hex(header.e_phoff) + " of " + std::to_string(bytes) + " bytes",
        "them inside the file of " + std::to_string(elf->reader->size()) + " bytes");
    return false;
  }
  elf->segments.resize(header.e_phnum);
  return elf->reader->read(header.e_phoff, elf->segments.data(), bytes);
}

// Returns whether all bytes that are mapped for a PT_LOAD lie inside a file of `size` bytes. For a
// segment without bytes in the file, the loader maps only the file page in which the segment
// begins, and clears the rest of that page.
bool is_inside(const Elf64_Phdr& load, uint64_t size) {
  if (load.p_filesz != 0) return load.p_offset <= size && load.p_filesz <= size - load.p_offset;
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return load.p_vaddr % page == 0 || load.p_offset - load.p_offset % page < size;
}

// Since 2.35, glibc's loader requires only that address and offset agree modulo the page size.
// Older loaders require p_align to be a multiple of the page size, and the two to agree modulo
// p_align; tools that rewrite a file with large alignments do not always keep that.
bool has_lenient_loader() {
  static const bool is_lenient = [] {
    const std::optional<Version> version = Version::parse(gnu_get_libc_version());
    return version && *version >= Version{2, 35};
  }();
  return is_lenient;
}

// Returns the most memory that the kernel lets a process map at once: all RAM and swap, or any
// amount where vm.overcommit_memory is 1.
uint64_t most_memory() {
  static const uint64_t most = [] {
    std::ifstream overcommit("/proc/sys/vm/overcommit_memory");
    struct sysinfo here{};
    const bool promises_all = overcommit.get() == '1';
    if (promises_all || sysinfo(&here) != 0) return kAddressLimit;
    return (uint64_t{here.totalram} + here.totalswap) * here.mem_unit;
  }();
  return most;
}

void check_load(ElfFile* elf, size_t index, const Elf64_Phdr* previous) {
  Defects& defects = *elf->defects;
  const Elf64_Phdr& load = elf->segments[index];
  const std::string name = "segment " + std::to_string(index);
  const uint64_t size = elf->reader->size();
  if (!is_inside(load, size)) {
    defects.add(Code::kElfTruncated,
                name + " at " + hex(load.p_offset) + " with " + hex(load.p_filesz) + " bytes",
                "it inside the file of " + hex(size) + " bytes");
  }
  if (load.p_filesz > load.p_memsz) {
    defects.add(Code::kElfMalformed,
                name + " with " + hex(load.p_filesz) + " bytes in the file, " + hex(load.p_memsz) +
                    " in memory",
                "no more in the file than in memory");
  }
  if (load.p_vaddr >= kAddressLimit || load.p_memsz >= kAddressLimit - load.p_vaddr) {
    defects.add(Code::kElfMalformed,
                name + " at address " + hex(load.p_vaddr) + " with " + hex(load.p_memsz) + " bytes",
                "addresses below " + hex(kAddressLimit));
    return;
  }
  if ((load.p_flags & PF_W) != 0 && load.p_memsz > most_memory()) {
    defects.add(Code::kElfMalformed, name + " with " + hex(load.p_memsz) + " bytes in memory",
                "at most the " + hex(most_memory()) + " of this machine");
  }
  // The alignment that this machine's loader requires. A p_align of 0 means 1 by definition.
  const uint64_t alignment = has_lenient_loader() ? kSmallestPage : load.p_align;
  if ((load.p_align & (load.p_align - 1)) != 0 || alignment == 0 ||
      alignment % kSmallestPage != 0) {
    defects.add(
        Code::kElfMalformed, name + " aligned to " + hex(load.p_align),
        has_lenient_loader() ? "a power of two" : "a power of two and a multiple of the page size");
  } else if ((load.p_vaddr - load.p_offset) % alignment != 0) {
    defects.add(Code::kElfMalformed,
                name + " at address " + hex(load.p_vaddr) + ", offset " + hex(load.p_offset),
                "both equal modulo " + hex(alignment));
  }
  if (previous != nullptr && load.p_vaddr < previous->p_vaddr + previous->p_memsz) {
    defects.add(Code::kElfMalformed,
                name + " at address " + hex(load.p_vaddr) + ", inside or before the previous one",
                "segments in ascending order that do not overlap");
  }
}

// The loader makes these pages (PT_GNU_RELRO) read-only; outside the file's own segments that
// fails, or affects other memory.
void check_read_only(const ElfFile& elf, const Elf64_Phdr& segment) {
  const bool inside =
      std::any_of(elf.segments.begin(), elf.segments.end(), [&](const Elf64_Phdr& load) {
        if (load.p_type != PT_LOAD || segment.p_vaddr < load.p_vaddr) return false;
        const uint64_t into = segment.p_vaddr - load.p_vaddr;
        const uint64_t room = load.p_memsz + kSmallestPage;  // up to the page's end
        return into <= room && segment.p_memsz <= room - into;
      });
  if (inside) return;
  elf.defects->add(Code::kElfMalformed,
                   "pages to be made read-only at " + hex(segment.p_vaddr) + " of " +
                       hex(segment.p_memsz) + " bytes",
                   "them inside one PT_LOAD segment");
}

void check_segments(ElfFile* elf) {
  const Elf64_Phdr* previous = nullptr;
  for (size_t i = 0; i < elf->segments.size(); ++i) {
    if (elf->segments[i].p_type != PT_LOAD) continue;
    check_load(elf, i, previous);
    previous = &elf->segments[i];
  }
  if (previous == nullptr) {
    elf->defects->add(Code::kElfMalformed, "no PT_LOAD segment", "at least one");
  }
  for (const Elf64_Phdr& segment : elf->segments) {
    if (segment.p_type == PT_GNU_RELRO) check_read_only(*elf, segment);
  }
}

// Linkers put the section headers last, so headers beyond the end of the file show that the end is
// missing. The loader does not read them: it loads the file if all segments are complete.
void check_end(ElfFile* elf) {
  const Elf64_Ehdr& header = elf->header;
  const uint64_t bytes = uint64_t{header.e_shnum} * header.e_shentsize;
  if (header.e_shoff == 0 || elf->reader->contains(header.e_shoff, bytes)) return;
  if (elf->defects->has(Code::kElfTruncated)) return;
  elf->defects->add(
      Code::kSectionsCut,
      "section headers at " + hex(header.e_shoff) + " of " + std::to_string(bytes) + " bytes",
      "them inside the file of " + hex(elf->reader->size()) + " bytes");
}

}  // namespace

std::string hex(uint64_t value) {
  char text[19];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

void Defects::add(Code code, std::string found, std::string wanted, const std::string& advice) {
  const auto same = std::count_if(reasons_->begin(), reasons_->end(),
                                  [&](const Reason& r) { return r.code == code; });
  const auto most = code == Code::kElfTruncated ? 1 : 8;
  if (same >= most) return;
  reasons_->push_back(make_reason(code, std::move(found), std::move(wanted)));
  if (!advice.empty()) reasons_->back().advice = advice;
}

bool Defects::has(Code code) const {
  return std::any_of(reasons_->begin(), reasons_->end(),
                     [&](const Reason& reason) { return reason.code == code; });
}

std::optional<uint64_t> ElfFile::to_offset(uint64_t address, uint64_t size, bool is_code) const {
  const std::optional<Extent> rest = rest_of_segment(address, is_code);
  if (!rest || size > rest->size) return std::nullopt;
  return rest->offset;
}

std::optional<Extent> ElfFile::rest_of_segment(uint64_t address, bool is_code) const {
  const uint32_t rights = is_code ? PF_R | PF_X : PF_R;
  for (const Elf64_Phdr& load : segments) {
    if (load.p_type != PT_LOAD || (load.p_flags & rights) == 0 || address < load.p_vaddr) continue;
    const uint64_t into = address - load.p_vaddr;
    if (into >= load.p_filesz || load.p_offset > reader->size()) continue;
    const uint64_t room = reader->size() - load.p_offset;
    if (into >= room) continue;
    return Extent{load.p_offset + into, std::min(load.p_filesz, room) - into};
  }
  return std::nullopt;
}

bool read_headers(ElfFile* elf, bool* is_elf) {
  if (!check_identity(elf, is_elf)) return false;
  if (!elf->reader->read(0, &elf->header)) return false;
  if (is_gpu_code(elf) || !check_header(elf) || !read_segments(elf)) return false;
  check_segments(elf);
  check_end(elf);
  return true;
}

std::vector<Section> read_sections(const ElfFile& elf) {
  const Elf64_Ehdr& header = elf.header;
  FileReader& reader = *elf.reader;
  if (header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shnum == 0) return {};
  std::vector<Elf64_Shdr> headers(header.e_shnum);
  if (!reader.read_exactly(header.e_shoff, headers.data(), headers.size() * sizeof(Elf64_Shdr)) ||
      header.e_shstrndx >= headers.size()) {
    return {};
  }
  const Elf64_Shdr& names = headers[header.e_shstrndx];
  if (!reader.contains(names.sh_offset, names.sh_size)) return {};
  std::vector<Section> sections;
  for (const Elf64_Shdr& section : headers) {
    if (section.sh_name >= names.sh_size || section.sh_type == SHT_NOBITS ||
        !reader.contains(section.sh_offset, section.sh_size)) {
      continue;
    }
    std::string name;
    constexpr size_t kMaxName = 32;
    reader.read_text(names.sh_offset + section.sh_name, names.sh_offset + names.sh_size, kMaxName,
                     &name);
    sections.push_back({std::move(name), {section.sh_offset, section.sh_size}});
  }
  return sections;
}

}  // namespace opdock
