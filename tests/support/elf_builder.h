// Writes ELF shared objects that look like plugins, byte by byte, for tests to damage. Shares no
// structure with the reader under test: all offsets and numbers come from the ELF specification.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "opdock/plugin.h"

namespace opdock_test {

// A byte buffer with little-endian writes at any offset; it grows as needed.
class Bytes {
 public:
  Bytes() = default;
  explicit Bytes(const std::string& text) : data(text.begin(), text.end()) {}

  std::vector<uint8_t> data;

  size_t size() const { return data.size(); }
  Bytes& put(size_t at, uint64_t value, size_t count) {
    grow(at + count);
    for (size_t i = 0; i < count; ++i) data[at + i] = static_cast<uint8_t>(value >> (8 * i));
    return *this;
  }
  Bytes& u8(size_t at, uint64_t value) { return put(at, value, 1); }
  Bytes& u16(size_t at, uint64_t value) { return put(at, value, 2); }
  Bytes& u32(size_t at, uint64_t value) { return put(at, value, 4); }
  Bytes& u64(size_t at, uint64_t value) { return put(at, value, 8); }
  Bytes& text(size_t at, const std::string& value) {
    grow(at + value.size());
    std::copy(value.begin(), value.end(), data.begin() + static_cast<std::ptrdiff_t>(at));
    return *this;
  }
  uint64_t get(size_t at, size_t count) const {
    uint64_t value = 0;
    for (size_t i = 0; i < count; ++i) value |= uint64_t{data.at(at + i)} << (8 * i);
    return value;
  }
  // Not inlined: g++ 12 at -O3 reports an inlined resize as a write past the end of memory.
  [[gnu::noinline]] void grow(size_t size) {
    if (data.size() < size) data.resize(size);
  }
  // Appends the bytes at the next aligned offset and returns that offset.
  size_t add(const Bytes& more, size_t alignment = 1) {
    data.resize((data.size() + alignment - 1) / alignment * alignment);
    const size_t at = data.size();
    data.insert(data.end(), more.data.begin(), more.data.end());
    return at;
  }
};

// Returns the descriptor of an in-memory file with these bytes; the caller closes it.
inline int open_bytes(const std::vector<uint8_t>& bytes) {
  const int fd = memfd_create("opdock-test", MFD_CLOEXEC);
  if (fd < 0 || write(fd, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
    std::abort();
  }
  return fd;
}

// A plugin under construction. Set the members first; file() then lays the plugin out once.
// Afterwards tests change the bytes at the offsets that the members below give.
class Plugin {
 public:
  uint16_t machine = 62;  // EM_X86_64
  std::string json =
      R"({"name":"axpy","version":"0.1.0","license":"Apache-2.0","ops":[{"schema":"axpy(Tensor x) -> Tensor",)"
      R"("digest":"669c6ce05420094fc91c0b7c99b98c8421a11f64df65e5bf375c78fa9bfbbdc7","devices":["cpu"],)"
      R"("dtypes":["float32"],"shape":["like x"],"flags":["thread-safe"]}],"devices":["cpu"],)"
      R"("cpu":{"arch":"x86_64","level":1},"toolchain":"a test"})";
  Bytes image_table;                // empty: no table and no opdock_images_v0
  std::vector<std::string> needed;  // DT_NEEDED
  std::string soname, rpath, runpath;
  struct Symbol {
    std::string name;
    bool defined = true;
    unsigned binding = 1;  // STB_GLOBAL
  };
  std::vector<Symbol> symbols = {{"opdock_plugin_v0", true, 1}};
  std::vector<std::pair<std::string, std::vector<std::string>>> versions;  // library, its versions
  uint64_t flags = 0;                                                      // DT_FLAGS
  uint64_t flags_1 = 0;                                                    // DT_FLAGS_1
  bool sysv_hash = false;    // DT_HASH instead of DT_GNU_HASH
  bool relocations = false;  // writes DT_RELA with one entry for each undefined symbol
  bool stack_segment = true;
  uint32_t stack_flags = 6;  // PF_R | PF_W
  int notes = 1;             // number of copies of the note
  bool note_segment = true;  // whether a PT_NOTE covers it
  bool section_headers = true;
  uint32_t note_alignment = 4;
  Bytes extra;                // appended after all loaded parts; the first segment covers it
  std::string extra_section;  // name of its section; empty: no section

  // Offsets in the file, valid after layout.
  size_t load0 = 0, load1 = 0, dynamic_header = 0, note_header = 0, stack_header = 0;
  size_t note = 0, descriptor = 0, images = 0, dynsym = 0, dynstr = 0, hash = 0, verneed = 0,
         dynamic = 0, sections = 0, extra_at = 0;
  size_t images_symbol = 0;                          // offset in dynsym of the image table's symbol
  static constexpr uint64_t kDynamicShift = 0x1000;  // address minus offset of the second segment

  Bytes& file() {
    if (!laid_out_) lay_out();
    laid_out_ = true;
    return file_;
  }
  // Returns the file offset of the value of the first dynamic entry with `tag`.
  size_t dyn(uint64_t tag) {
    for (size_t at = (file(), dynamic); at + 16 <= file_.size(); at += 16) {
      if (file_.get(at, 8) == tag) return at + 8;
    }
    abort();
  }
  void replace(const std::string& what, const std::string& with) {
    const size_t at = json.find(what);
    if (at == std::string::npos) abort();
    json.replace(at, what.size(), with);
  }
  void cut(size_t size) { file().data.resize(size); }

 private:
  Bytes file_;
  bool laid_out_ = false;

  static constexpr const char* kImages = "opdock_images_v0";

  static uint32_t gnu_hash(const std::string& name) {
    uint32_t hash = 5381;
    for (const char c : name) hash = hash * 33 + static_cast<unsigned char>(c);
    return hash;
  }

  static uint32_t sysv_hash_of(const std::string& name) {
    uint64_t hash = 0;
    for (const char c : name) {
      hash = hash * 16 + static_cast<unsigned char>(c);
      hash = (hash ^ ((hash & 0xf0000000) >> 24)) & 0x0fffffff;
    }
    return static_cast<uint32_t>(hash);
  }

  Bytes make_descriptor() const {
    Bytes head;
    head.u16(0, 2)
        .u16(2, 48)
        .u16(4, OPDOCK_ABI_MAJOR)
        .u16(6, OPDOCK_ABI_MINOR)
        .u32(8, 0)
        .u32(12, json.size());
    for (size_t i = 0; i < 32; ++i) head.u8(16 + i, i);
    head.text(48, json);
    return head;
  }

  void lay_out() {
    Bytes& f = file_;
    const size_t segments = 5;
    load0 = 64, load1 = load0 + 56, dynamic_header = load1 + 56, note_header = dynamic_header + 56,
    stack_header = note_header + 56;
    f.u8(64 + segments * 56 - 1, 0);

    std::vector<size_t> descriptors;
    for (int i = 0; i < notes; ++i) {
      const Bytes head_and_json = make_descriptor();
      Bytes whole;
      whole.u32(0, 7).u32(4, head_and_json.size()).u32(8, 1);
      whole.text(12, std::string("opdock\0", 7));
      const size_t body = (19 + note_alignment - 1) / note_alignment * note_alignment;
      whole.text(body, string_of(head_and_json));
      const size_t at = f.add(whole, note_alignment);
      if (i == 0) note = at;
      descriptors.push_back(at + body);
    }
    if (descriptors.empty()) note = f.size();
    const size_t note_end = f.size();
    descriptor = descriptors.empty() ? 0 : descriptors.front();

    Bytes strings;
    strings.u8(0, 0);
    const auto name = [&](const std::string& text) {
      const size_t at = strings.size();
      strings.text(at, text).u8(at + text.size(), 0);
      return at;
    };
    Bytes table;  // symbols; DT_GNU_HASH requires the undefined ones first
    table.u8(23, 0);
    std::vector<Symbol> sorted;
    for (const bool defined : {false, true}) {
      for (const Symbol& s : symbols) {
        if (s.defined == defined) sorted.push_back(s);
      }
    }
    if (image_table.size() != 0) sorted.push_back({kImages, true, 1});
    size_t undefined = 1;
    for (const Symbol& s : sorted) {
      const size_t at = table.size();
      const unsigned type = s.name == kImages ? 1 : 2;  // STT_OBJECT, STT_FUNC
      table.u32(at, name(s.name)).u8(at + 4, s.binding << 4 | type).u8(at + 5, 0);
      table.u16(at + 6, s.defined ? 7 : 0).u64(at + 8, s.defined ? 0x40 : 0).u64(at + 16, 8);
      if (!s.defined) ++undefined;
    }
    Bytes hash_table;
    if (sysv_hash) {
      hash_table.u32(0, 1).u32(4, table.size() / 24).u32(8, 0);
      hash_table.u32(8 + table.size() / 24 * 4, 0);
    } else {
      const bool any = undefined < table.size() / 24;
      hash_table.u32(0, 1).u32(4, undefined).u32(8, 1).u32(12, 6).u64(16, ~uint64_t{0});
      hash_table.u32(24, any ? undefined : 0);
      for (size_t i = undefined; i < table.size() / 24; ++i) {
        const bool last = i + 1 == table.size() / 24;
        const uint32_t value = gnu_hash(sorted[i - 1].name);
        hash_table.u32(28 + (i - undefined) * 4, (value & ~1u) | (last ? 1 : 0));
      }
    }
    Bytes needs;
    for (size_t i = 0; i < versions.size(); ++i) {
      const auto& [library, list] = versions[i];
      const size_t at = needs.size();
      const size_t next = i + 1 < versions.size() ? 16 + 16 * list.size() : 0;
      needs.u16(at, 1).u16(at + 2, list.size()).u32(at + 4, name(library)).u32(at + 8, 16);
      needs.u32(at + 12, next);
      for (size_t j = 0; j < list.size(); ++j) {
        const size_t aux = at + 16 + 16 * j;
        needs.u32(aux, sysv_hash_of(list[j]))
            .u16(aux + 4, 0)
            .u16(aux + 6, 2 + j)
            .u32(aux + 8, name(list[j]));
        needs.u32(aux + 12, j + 1 < list.size() ? 16 : 0);
      }
    }

    Bytes dynamic_table;
    const auto entry = [&](uint64_t tag, uint64_t value) {
      const size_t at = dynamic_table.size();
      dynamic_table.u64(at, tag).u64(at + 8, value);
    };
    for (const std::string& library : needed) entry(1, name(library));
    if (!soname.empty()) entry(14, name(soname));
    if (!rpath.empty()) entry(15, name(rpath));
    if (!runpath.empty()) entry(29, name(runpath));

    Bytes relocation_table;  // relocates addresses in the second segment, which is laid out below
    for (size_t i = 1; relocations && i < undefined; ++i) {
      const size_t at = relocation_table.size();
      const uint64_t type = machine == 183 ? 1025 : 6;  // GLOB_DAT
      relocation_table.u64(at, 0).u64(at + 8, uint64_t{i} << 32 | type).u64(at + 16, 0);
    }
    dynsym = f.add(table, 8);
    dynstr = f.add(strings);
    hash = f.add(hash_table, 8);
    verneed = f.add(needs, 8);
    images = image_table.size() != 0 ? f.add(image_table, 64) : 0;
    if (images != 0) {  // the image table's symbol is the last one
      images_symbol = dynsym + table.size() - 24;
      f.u64(images_symbol + 8, images).u64(images_symbol + 16, image_table.size());
    }
    const size_t relocations_at = f.add(relocation_table, 8);
    extra_at = f.add(extra, 8);
    const size_t loaded = f.size();

    entry(5, dynstr);
    entry(10, strings.size());
    entry(6, dynsym);
    entry(11, 24);
    entry(sysv_hash ? 4 : 0x6ffffef5, hash);
    if (!versions.empty()) {
      entry(0x6ffffffe, verneed);
      entry(0x6fffffff, versions.size());
    }
    if (relocation_table.size() != 0) {
      entry(7, relocations_at);
      entry(8, relocation_table.size());
      entry(9, 24);
    }
    if (flags != 0) entry(30, flags);
    if (flags_1 != 0) entry(0x6ffffffb, flags_1);
    entry(0, 0);
    dynamic = f.add(dynamic_table, 8);
    for (size_t at = 0; at < relocation_table.size(); at += 24) {
      f.u64(relocations_at + at, dynamic + kDynamicShift);
    }

    f.text(0, std::string("\177ELF\2\1\1", 7)).u16(16, 3).u16(18, machine).u32(20, 1);
    f.u64(32, 64).u16(52, 64).u16(54, 56).u16(56, stack_segment ? segments : segments - 1);
    segment(load0, 1, 5, 0, 0, loaded, 0x1000);
    segment(load1, 1, 6, dynamic, dynamic + kDynamicShift, dynamic_table.size(), 0x1000);
    segment(dynamic_header, 2, 6, dynamic, dynamic + kDynamicShift, dynamic_table.size(), 8);
    segment(note_header, note_segment ? 4 : 0, 4, note, note, note_end - note, note_alignment);
    if (stack_segment) segment(stack_header, 0x6474e551, stack_flags, 0, 0, 0, 16);
    if (section_headers) add_sections(note_end);
  }

  void segment(size_t at, uint32_t type, uint32_t rights, uint64_t offset, uint64_t address,
               uint64_t size, uint64_t alignment) {
    file_.u32(at, type).u32(at + 4, rights).u64(at + 8, offset).u64(at + 16, address);
    file_.u64(at + 24, address).u64(at + 32, size).u64(at + 40, size).u64(at + 48, alignment);
  }

  void add_sections(size_t note_end) {
    const std::string names =
        std::string("\0.note.opdock\0.shstrtab\0", 24) + extra_section + std::string(1, '\0');
    const size_t names_at = file_.add(Bytes(names));
    const size_t count = extra_section.empty() ? 3 : 4;
    Bytes table;
    table.u8(count * 64 - 1, 0);
    table.u32(64, 1).u32(68, 7).u64(64 + 24, note).u64(64 + 32, note_end - note);
    table.u32(128, 14).u32(132, 3).u64(128 + 24, names_at).u64(128 + 32, names.size());
    if (count == 4)
      table.u32(192, 24).u32(196, 1).u64(192 + 24, extra_at).u64(192 + 32, extra.size());
    sections = file_.add(table, 8);
    file_.u64(40, sections).u16(58, 64).u16(60, count).u16(62, 2);
  }

  static std::string string_of(const Bytes& bytes) {
    return std::string(bytes.data.begin(), bytes.data.end());
  }
};

}  // namespace opdock_test
