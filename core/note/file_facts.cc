// SPDX-License-Identifier: Apache-2.0
#include "note/file_facts.h"

#include <algorithm>
#include <cstring>

#include "note/device_bundles.h"
#include "note/elf_dynamic.h"
#include "note/elf_file.h"
#include "note/elf_library.h"
#include "note/elf_notes.h"
#include "note/image_table.h"
#include "opdock/plugin.h"

namespace opdock {
namespace {

// *table: set to the image table's symbol if the file has one.
void take_symbols(const Library& library, Depth depth, FileFacts* facts,
                  std::optional<Elf64_Sym>* table) {
  library.symbols.for_each([&](const Elf64_Sym& symbol, std::string_view name) {
    const unsigned binding = ELF64_ST_BIND(symbol.st_info);
    if (name.empty() || binding == STB_LOCAL) return;
    const bool defined = symbol.st_shndx != SHN_UNDEF;
    if (defined && binding == STB_GNU_UNIQUE) facts->unique_symbols = true;
    if (defined && name == OPDOCK_ENTRY_NAME) facts->exports_entry = true;
    if (defined && name == OPDOCK_IMAGES_NAME) *table = symbol;
    if (depth == Depth::kInspect) (defined ? facts->exports : facts->undefined).emplace_back(name);
  });
}

void check_claims(const ElfFile& elf, const Note& note, FileFacts* facts) {
  const char* machine = nullptr;
  if (facts->machine == EM_X86_64) machine = "x86_64";
  if (facts->machine == EM_AARCH64) machine = "aarch64";
  if (machine != nullptr && note.cpu_arch != machine && !note.cpu_arch.empty()) {
    elf.defects->add(Code::kClaimMachine, std::string("an ELF header for ") + machine,
                     note.cpu_arch);
  }
  if (!facts->exports_entry && !elf.defects->has(Code::kElfTruncated) &&
      is_callable_abi(note.head.abi_major, note.head.abi_minor)) {
    elf.defects->add(Code::kEntryMissing, "no defined dynamic symbol " OPDOCK_ENTRY_NAME, "one");
  }
}

// Returns true if the note lists a GPU for which Opdock's table has no image: device code for it,
// if there is any, was embedded by another tool.
bool lacks_images(const Note& note, const std::vector<DeviceImage>& images) {
  return std::any_of(note.devices.begin(), note.devices.end(), [&](Backend backend) {
    return backend != Backend::kCpu &&
           std::none_of(images.begin(), images.end(),
                        [&](const DeviceImage& image) { return image.backend == backend; });
  });
}

void read_elf(const ElfFile& elf, Depth depth, FileFacts* facts) {
  facts->executable_stack = wants_executable_stack(elf);
  std::optional<FoundNote> found = find_note(elf);
  std::optional<Dynamic> dynamic = read_dynamic(elf);
  facts->is_program = elf.header.e_type == ET_EXEC || (dynamic && dynamic->executable);
  facts->is_shared_object = elf.header.e_type == ET_DYN && dynamic && !dynamic->executable;
  std::optional<Elf64_Sym> table;
  if (dynamic) {
    facts->needed = dynamic->needed;
    facts->versions = dynamic->versions;
    facts->soname = dynamic->soname;
    facts->rpath = dynamic->rpath;
    facts->runpath = dynamic->runpath;
    facts->static_tls = dynamic->static_tls;
    if (depth == Depth::kInspect) check_relocations(elf, *dynamic);
    // A verdict needs only a plugin's symbols; other libraries may have a hundred thousand.
    if (found || depth == Depth::kInspect) {
      auto library =
          std::make_shared<const Library>(read_library(elf, *std::move(dynamic), facts->path));
      take_symbols(*library, depth, facts, &table);
      facts->library = std::move(library);
    }
  }
  if (found) {
    check_claims(elf, found->note, facts);
    facts->note_address = found->address;
    facts->note = std::move(found->note);
    read_image_table(elf, table, depth == Depth::kInspect, facts);
  }
  if (depth == Depth::kInspect || (facts->note && lacks_images(*facts->note, facts->images))) {
    // Source serves any GPU. So if there is source, only the usual sections are searched for other
    // tools' images, which such a plugin seldom has, and not the whole file.
    const bool has_source =
        std::any_of(facts->images.begin(), facts->images.end(),
                    [](const DeviceImage& image) { return image.kind == ImageKind::kSource; });
    find_device_bundles(elf, depth != Depth::kInspect && has_source, &facts->images);
  }
}

}  // namespace

FileFacts read_file_facts(int fd, uint64_t size, const std::string& path, Depth depth) {
  FileFacts facts;
  facts.path = path;
  facts.size = size;
  FileReader reader(fd, size);
  Defects defects(&facts.reasons);
  ElfFile elf{&reader, &defects, {}, {}};
  const bool readable = read_headers(&elf, &facts.is_elf);
  const unsigned char* const identity = elf.header.e_ident;
  facts.machine = elf.header.e_machine;
  facts.elf_bits = identity[EI_CLASS] == ELFCLASS64   ? 64
                   : identity[EI_CLASS] == ELFCLASS32 ? 32
                                                      : 0;
  facts.big_endian = identity[EI_DATA] == ELFDATA2MSB;
  if (readable) read_elf(elf, depth, &facts);
  if (reader.changed()) {
    defects.add(Code::kFileChanged, "fewer bytes than its " + std::to_string(size),
                "a file that stays as it is");
  }
  if (reader.error_number() != 0) {
    defects.add(Code::kPathUnreadable, std::strerror(reader.error_number()), "readable bytes");
  }
  return facts;
}

}  // namespace opdock
