// SPDX-License-Identifier: Apache-2.0
#include "note/elf_dynamic.h"

#include <algorithm>

namespace opdock {
namespace {

constexpr uint64_t kMaxDynamicBytes = 1 << 20;
constexpr size_t kMaxNameBytes = 1 << 20;  // a RUNPATH may name a folder for each needed package
// The sum over all names: many may share the end of one long text.
constexpr uint64_t kMaxNamesBytes = 16 << 20;
constexpr unsigned kMaxVersions = 65536;
constexpr int64_t kRelrSize = 35, kRelr = 36, kRelrEntry = 37;  // DT_RELR…, which <elf.h> may lack

// Returns the entries before DT_NULL; if they cannot be read, adds a defect and returns none.
std::vector<Elf64_Dyn> read_entries(const ElfFile& elf) {
  Defects& defects = *elf.defects;
  const Elf64_Phdr* dynamic = nullptr;
  for (const Elf64_Phdr& segment : elf.segments) {
    if (segment.p_type != PT_DYNAMIC) continue;
    if (dynamic != nullptr) {
      defects.add(Code::kElfMalformed, "two PT_DYNAMIC segments", "one");
      return {};
    }
    dynamic = &segment;
  }
  if (dynamic == nullptr) {
    if (elf.header.e_type == ET_EXEC) return {};  // a static program
    defects.add(Code::kElfMalformed, "no PT_DYNAMIC segment", "one");
    return {};
  }
  if (!elf.reader->contains(dynamic->p_offset, dynamic->p_filesz)) {
    defects.add(Code::kElfTruncated, "a dynamic section at " + hex(dynamic->p_offset),
                "it inside the file of " + hex(elf.reader->size()) + " bytes");
    return {};
  }
  if (dynamic->p_filesz > kMaxDynamicBytes) {
    defects.add(Code::kElfMalformed,
                "a dynamic section of " + std::to_string(dynamic->p_filesz) + " bytes",
                "at most " + std::to_string(kMaxDynamicBytes));
    return {};
  }
  // The loader uses the address, tools use the offset.
  if (elf.to_offset(dynamic->p_vaddr, dynamic->p_filesz) != dynamic->p_offset) {
    defects.add(Code::kElfMalformed,
                "a dynamic section at offset " + hex(dynamic->p_offset) + " and address " +
                    hex(dynamic->p_vaddr),
                "that address to be loaded from that offset");
    return {};
  }
  std::vector<Elf64_Dyn> entries(dynamic->p_filesz / sizeof(Elf64_Dyn));
  if (!elf.reader->read(dynamic->p_offset, entries.data(), entries.size() * sizeof(Elf64_Dyn))) {
    return {};
  }
  const auto end = std::find_if(entries.begin(), entries.end(),
                                [](const Elf64_Dyn& entry) { return entry.d_tag == DT_NULL; });
  if (end == entries.end()) {
    defects.add(Code::kElfMalformed, "a dynamic section without an end", "a DT_NULL entry");
    return {};
  }
  entries.erase(end, entries.end());
  return entries;
}

// Tables whose addresses the loader uses unchecked while it relocates and initialises: {address
// tag, size tag}.
constexpr struct {
  int64_t address, size;
  const char* name;
} kTables[] = {
    {DT_RELA, DT_RELASZ, "relocations"},
    {DT_JMPREL, DT_PLTRELSZ, "PLT relocations"},
    {kRelr, kRelrSize, "relative relocations"},
    {DT_INIT_ARRAY, DT_INIT_ARRAYSZ, "constructors"},
    {DT_FINI_ARRAY, DT_FINI_ARRAYSZ, "destructors"},
    {DT_STRTAB, DT_STRSZ, "string table"},
    {DT_SYMTAB, 0, "symbol table"},
    {DT_HASH, 0, "hash table"},
    {DT_GNU_HASH, 0, "GNU hash table"},
    {DT_VERSYM, 0, "version table"},
    {DT_VERNEED, 0, "version needs"},
    {DT_VERDEF, 0, "version definitions"},
    {DT_INIT, 0, "init function"},
    {DT_FINI, 0, "fini function"},
};

// The values of the tags that occur once. If such a tag occurs twice, the last one counts.
class DynamicValues {
 public:
  explicit DynamicValues(const std::vector<Elf64_Dyn>& entries) : entries_(entries) {}
  std::optional<uint64_t> find(int64_t tag) const {
    const auto found = std::find_if(entries_.rbegin(), entries_.rend(),
                                    [&](const Elf64_Dyn& entry) { return entry.d_tag == tag; });
    return found == entries_.rend() ? std::nullopt : std::optional(found->d_un.d_val);
  }
  bool has(int64_t tag) const { return find(tag).has_value(); }

 private:
  const std::vector<Elf64_Dyn>& entries_;
};

void check_tables(const ElfFile& elf, const DynamicValues& values) {
  if (elf.defects->has(Code::kElfTruncated)) return;  // already reported
  for (const auto& table : kTables) {
    const std::optional<uint64_t> address = values.find(table.address);
    if (!address) continue;
    uint64_t size = 1;
    if (table.size != 0) {
      const std::optional<uint64_t> given = values.find(table.size);
      if (!given) {
        elf.defects->add(Code::kElfMalformed, std::string(table.name) + " without their size",
                         "address and size");
        continue;
      }
      size = *given;
    }
    const bool is_code = table.address == DT_INIT || table.address == DT_FINI;
    if (size != 0 && !elf.to_offset(*address, size, is_code)) {
      elf.defects->add(
          Code::kElfMalformed,
          std::string(table.name) + " at address " + hex(*address) + " of " + hex(size) + " bytes",
          "them inside one PT_LOAD segment");
    }
  }
}

class DynamicReader {
 public:
  DynamicReader(const ElfFile& elf, Dynamic* out) : elf_(elf), out_(out) {}

  std::string name(uint64_t offset, const char* what) {
    std::string text;
    const Extent& names = out_->names;
    const size_t limit = static_cast<size_t>(std::min<uint64_t>(kMaxNameBytes, names_left_));
    const bool good = offset < names.size &&
                      elf_.reader->read_text(names.offset + offset, names.end(), limit, &text);
    names_left_ -= text.size();
    if (!good) {
      elf_.defects->add(
          Code::kElfMalformed,
          std::string(what) + " named at " + hex(offset) + " of the string table",
          "a text inside its " + hex(names.size) + " bytes, of at most " + hex(limit));
      text.clear();
    }
    return text;
  }

  // Reads DT_VERNEED: a linked list of libraries, each with a linked list of versions. The links
  // are forward distances in bytes.
  void read_versions(uint64_t address, uint64_t count) {
    const std::optional<Extent> table = elf_.rest_of_segment(address);
    if (!table) return;  // check_tables has reported it
    uint64_t at = 0;
    unsigned total = 0;
    for (uint64_t i = 0; i < count; ++i) {
      Elf64_Verneed need;
      if (!read(*table, at, &need) || need.vn_version != 1) return malformed(at);
      const std::string library = name(need.vn_file, "a library");
      uint64_t aux_at = at + need.vn_aux;
      for (unsigned j = 0; j < need.vn_cnt; ++j) {
        Elf64_Vernaux aux;
        if (++total > kMaxVersions || !read(*table, aux_at, &aux)) return malformed(aux_at);
        const std::string version = name(aux.vna_name, "a version");
        if (aux.vna_hash != sysv_hash(version)) {
          elf_.defects->add(Code::kElfMalformed, "the version " + version + " with a wrong hash",
                            "the hash that the loader compares first");
        }
        out_->versions.push_back({library, version, (aux.vna_flags & VER_FLG_WEAK) != 0,
                                  static_cast<uint16_t>(aux.vna_other & kVersionIndex),
                                  (aux.vna_other & ~kVersionIndex) != 0, aux.vna_name,
                                  need.vn_file});
        if (aux.vna_next == 0) break;
        aux_at += aux.vna_next;
      }
      if (need.vn_next == 0) return;
      if (++total > kMaxVersions) return malformed(at);
      at += need.vn_next;
    }
  }

 private:
  template <typename T>
  bool read(const Extent& table, uint64_t at, T* out) {
    return at <= table.size && sizeof(T) <= table.size - at &&
           elf_.reader->read(table.offset + at, out);
  }
  void malformed(uint64_t at) {
    elf_.defects->add(Code::kElfMalformed, "version needs that break at " + hex(at),
                      "a chain inside its segment");
  }

  const ElfFile& elf_;
  Dynamic* out_;
  uint64_t names_left_ = kMaxNamesBytes;
};

}  // namespace

uint32_t sysv_hash(std::string_view name) {
  uint32_t hash = 0;
  for (const unsigned char c : name) {
    hash = (hash << 4) + c;
    const uint32_t high = hash & 0xf0000000;
    hash = (hash ^ high >> 24) & ~high;
  }
  return hash;
}

std::optional<Dynamic> read_dynamic(const ElfFile& elf) {
  const std::vector<Elf64_Dyn> entries = read_entries(elf);
  if (entries.empty()) return std::nullopt;
  const DynamicValues values(entries);
  const auto value = [&](int64_t tag) { return values.find(tag).value_or(0); };
  check_tables(elf, values);

  Dynamic dynamic;
  const uint64_t names_size = value(DT_STRSZ);
  if (!values.has(DT_STRTAB)) {
    elf.defects->add(Code::kElfMalformed, "a dynamic section without a string table",
                     "DT_STRTAB and DT_STRSZ");
  } else if (const std::optional<uint64_t> offset = elf.to_offset(value(DT_STRTAB), names_size)) {
    dynamic.names = {*offset, names_size};
  }
  if (values.has(DT_SYMENT) && value(DT_SYMENT) != sizeof(Elf64_Sym)) {
    elf.defects->add(Code::kElfMalformed,
                     "symbols of " + std::to_string(value(DT_SYMENT)) + " bytes",
                     std::to_string(sizeof(Elf64_Sym)));
  }
  dynamic.symbols = value(DT_SYMTAB);
  for (const auto& table : kTables) {
    const uint64_t address = value(table.address);
    if (address > dynamic.symbols && (dynamic.symbols_end == 0 || address < dynamic.symbols_end)) {
      dynamic.symbols_end = address;
    }
  }
  dynamic.gnu_hash = value(DT_GNU_HASH);
  dynamic.hash = value(DT_HASH);
  dynamic.definitions = value(DT_VERDEF);
  dynamic.num_definitions = value(DT_VERDEFNUM);
  dynamic.symbol_versions = value(DT_VERSYM);
  dynamic.num_relative = value(DT_RELACOUNT);
  dynamic.text_relocations = values.has(DT_TEXTREL) || (value(DT_FLAGS) & DF_TEXTREL) != 0;
  if (values.has(DT_RELA) && value(DT_RELAENT) != sizeof(Elf64_Rela)) {
    elf.defects->add(Code::kElfMalformed,
                     "relocations of " + std::to_string(value(DT_RELAENT)) + " bytes",
                     std::to_string(sizeof(Elf64_Rela)));
  }
  if (values.has(DT_JMPREL) && value(DT_PLTREL) != DT_RELA) {
    elf.defects->add(Code::kElfMalformed, "PLT relocations without addends", "with addends (RELA)");
  }
  dynamic.relocations = {std::pair{value(DT_RELA), value(DT_RELASZ)},
                         std::pair{value(DT_JMPREL), value(DT_PLTRELSZ)}};
  if (values.has(kRelr) && value(kRelrEntry) != sizeof(uint64_t)) {
    elf.defects->add(Code::kElfMalformed,
                     "relative relocations of " + std::to_string(value(kRelrEntry)) + " bytes",
                     std::to_string(sizeof(uint64_t)));
  }
  dynamic.relative_table = {value(kRelr), value(kRelrSize)};
  dynamic.static_tls = (value(DT_FLAGS) & DF_STATIC_TLS) != 0;
  dynamic.executable = (value(DT_FLAGS_1) & DF_1_PIE) != 0;
  dynamic.relative = values.has(kRelr);
  dynamic.no_default_folders = (value(DT_FLAGS_1) & DF_1_NODEFLIB) != 0;
  dynamic.no_open = (value(DT_FLAGS_1) & DF_1_NOOPEN) != 0;
  if (dynamic.executable) {
    elf.defects->add(Code::kElfType, "a position-independent executable",
                     "a shared object (ET_DYN without DF_1_PIE)");
  }
  // glibc ignores tables that it does not know: the file would be loaded without being relocated.
  constexpr int64_t kAndroidTables[] = {0x6000000f, 0x60000011, 0x6fffe000};
  for (const int64_t tag : kAndroidTables) {
    if (!values.has(tag)) continue;
    elf.defects->add(Code::kElfAbi,
                     "relocations packed for Android (dynamic tag " + hex(uint64_t(tag)) + ")",
                     "relocations that glibc applies: link without --pack-dyn-relocs=android");
  }
  if (dynamic.names.size == 0) return dynamic;

  DynamicReader reader(elf, &dynamic);
  for (const Elf64_Dyn& entry : entries) {
    const uint64_t at = entry.d_un.d_val;
    if (entry.d_tag == DT_NEEDED) dynamic.needed.push_back(reader.name(at, "a needed library"));
    if (entry.d_tag == DT_FILTER) dynamic.filters.push_back(reader.name(at, "a filtered library"));
    if (entry.d_tag == DT_AUXILIARY) {
      dynamic.auxiliaries.push_back(reader.name(at, "an auxiliary library"));
    }
    if (entry.d_tag == DT_SONAME) dynamic.soname = reader.name(at, "the soname");
    if (entry.d_tag == DT_RPATH) dynamic.rpath = reader.name(at, "the RPATH");
    dynamic.has_runpath = dynamic.has_runpath || entry.d_tag == DT_RUNPATH;
    if (entry.d_tag == DT_RUNPATH) dynamic.runpath = reader.name(at, "the RUNPATH");
  }
  if (values.has(DT_VERNEED)) {
    reader.read_versions(value(DT_VERNEED), value(DT_VERNEEDNUM));
  }
  return dynamic;
}

std::vector<VersionDefinition> read_version_definitions(const ElfFile& elf,
                                                        const Dynamic& dynamic) {
  std::vector<VersionDefinition> names;
  if (dynamic.definitions == 0) return names;
  constexpr size_t kMaxVersionBytes = 4096;
  const std::optional<Extent> table = elf.rest_of_segment(dynamic.definitions);
  if (!table) return names;
  const uint64_t count = std::min<uint64_t>(dynamic.num_definitions, kMaxVersions);
  uint64_t at = 0;
  for (uint64_t i = 0; i < count; ++i) {
    Elf64_Verdef definition;
    Elf64_Verdaux own;  // the first of its names; the others are the names of its parents
    if (at > table->size || sizeof definition > table->size - at ||
        !elf.reader->read(table->offset + at, &definition)) {
      break;
    }
    const uint64_t own_at = at + definition.vd_aux;
    if (own_at > table->size || sizeof own > table->size - own_at ||
        !elf.reader->read(table->offset + own_at, &own) || own.vda_name >= dynamic.names.size) {
      break;
    }
    std::string name;
    if (!elf.reader->read_text(dynamic.names.offset + own.vda_name, dynamic.names.end(),
                               kMaxVersionBytes, &name)) {
      break;
    }
    if ((definition.vd_flags & VER_FLG_BASE) == 0 && definition.vd_hash == sysv_hash(name)) {
      names.push_back({static_cast<uint16_t>(definition.vd_ndx & kVersionIndex), std::move(name)});
    }
    if (definition.vd_next == 0) break;
    at += definition.vd_next;
  }
  return names;
}

}  // namespace opdock
