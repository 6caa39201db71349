// SPDX-License-Identifier: Apache-2.0
#include "fault.h"

namespace opdock_test {

std::vector<Fault> note_faults() {
  return {
      {"no note", Code::kNoteMissing,
       [](Plugin& p) {
         p.notes = 0;
         p.section_headers = false;
       }},
      {"a note of another owner", Code::kNoteMissing,
       [](Plugin& p) {
         p.section_headers = false;
         p.file().text((p.file(), p.note) + 12, "opduck");
       }},
      {"a note of another type", Code::kNoteMissing,
       [](Plugin& p) {
         p.section_headers = false;
         p.file();
         p.file().u32(p.note + 8, 2);
       }},
      {"a name size without its NUL", Code::kNoteMalformed,
       [](Plugin& p) {
         p.section_headers = false;
         p.file();
         p.file().u32(p.note, 6);
       }},
      {"an owner without its NUL", Code::kNoteMissing,
       [](Plugin& p) {
         p.section_headers = false;
         p.file();
         p.file().u32(p.note, 6).u8(p.note + 18, '!');
       }},
      {"a section .note.opdock with another note", Code::kNoteMalformed,
       [](Plugin& p) { p.file().text((p.file(), p.note) + 12, "opduck"); }},
      {"a note that no PT_LOAD has", Code::kNoteNotInSegment,
       [](Plugin& p) { p.file().u64((p.file(), p.note_header) + 16, 0x900000); }},
      {"a note at another address than its PT_LOAD's", Code::kNoteNotInSegment,
       [](Plugin& p) { p.file().u64((p.file(), p.note_header) + 16, p.note + 64); }},
      {"a note that no PT_NOTE covers", Code::kNoteNotInSegment,
       [](Plugin& p) { p.note_segment = false; }},
      {"a PT_NOTE that ends before the note", Code::kNoteNotInSegment,
       [](Plugin& p) { p.file().u64((p.file(), p.note_header) + 32, 0); }},
      {"two notes", Code::kNoteDuplicate, [](Plugin& p) { p.notes = 2; }},
      {"three notes", Code::kNoteDuplicate, [](Plugin& p) { p.notes = 3; }},
      {"a name size that overflows", Code::kNoteMalformed,
       [](Plugin& p) { p.file().u32((p.file(), p.note), 0xffffffff); }},
      {"a descriptor size that overflows", Code::kNoteMalformed,
       [](Plugin& p) { p.file().u32((p.file(), p.note) + 4, 0xffffffff); }},
      {"a descriptor one byte too long", Code::kNoteMalformed,
       [](Plugin& p) {
         p.file();
         p.file().u32(p.note + 4, p.file().get(p.note + 4, 4) + 4);
       }},
      {"a PT_NOTE past the end of the file", Code::kElfTruncated,
       [](Plugin& p) { p.file().u64((p.file(), p.note_header) + 8, 1 << 24); }},
      {"a PT_NOTE whose size overflows", Code::kElfTruncated,
       [](Plugin& p) { p.file().u64((p.file(), p.note_header) + 32, ~uint64_t{0}); }},
      {"hundreds of thousands of notes", Code::kNoteDuplicate,
       [](Plugin& p) {
         Bytes note;
         note.u32(0, 7).u32(4, 0).u32(8, 1).text(12, std::string("opdock\0\0", 8));
         for (size_t i = 0; i < 300000; ++i) p.extra.add(note);
         p.file();
         p.file().u64(p.note_header + 8, p.extra_at).u64(p.note_header + 16, p.extra_at);
         p.file().u64(p.note_header + 32, p.extra.size());
       }},
      {"thousands of empty notes without Opdock's", Code::kNoteNotInSegment,
       [](Plugin& p) {
         p.extra = Bytes(std::string(1 << 16, '\0'));
         p.file();
         p.file().u64(p.note_header + 8, p.extra_at).u64(p.note_header + 16, p.extra_at);
         p.file().u64(p.note_header + 32, p.extra.size());
       }},
      {"a descriptor of 0 bytes", Code::kNoteMalformed,
       [](Plugin& p) { p.file().u32((p.file(), p.note) + 4, 0); }},
      {"a descriptor of 47 bytes", Code::kNoteMalformed,
       [](Plugin& p) { p.file().u32((p.file(), p.note) + 4, 47); }},
      {"note version 0", Code::kNoteVersion,
       [](Plugin& p) { p.file().u16((p.file(), p.descriptor), 0); }},
      {"note version 1", Code::kNoteVersion,
       [](Plugin& p) { p.file().u16((p.file(), p.descriptor), 1); }},
      {"an unknown flag", Code::kNoteVersion,
       [](Plugin& p) { p.file().u32((p.file(), p.descriptor) + 8, 0x80); }},
      {"a head of 0 bytes", Code::kNoteMalformed,
       [](Plugin& p) { p.file().u16((p.file(), p.descriptor) + 2, 0); }},
      {"a head of 47 bytes", Code::kNoteMalformed,
       [](Plugin& p) { p.file().u16((p.file(), p.descriptor) + 2, 47); }},
      {"a head larger than the note", Code::kNoteMalformed,
       [](Plugin& p) { p.file().u16((p.file(), p.descriptor) + 2, 65535); }},
      {"a head that eats into the JSON", Code::kNoteMalformed,
       [](Plugin& p) { p.file().u16((p.file(), p.descriptor) + 2, 72); }},
      {"a JSON size larger than the note", Code::kNoteMalformed,
       [](Plugin& p) { p.file().u32((p.file(), p.descriptor) + 12, 0xffffffff); }},
      {"a JSON size of 0 with bytes behind it", Code::kNoteMalformed,
       [](Plugin& p) { p.file().u32((p.file(), p.descriptor) + 12, 0); }},
      {"a JSON size 4 too small", Code::kNoteMalformed,
       [](Plugin& p) { p.file().u32((p.file(), p.descriptor) + 12, p.json.size() - 4); }},
      {"a note over 64 KiB", Code::kNoteTooLarge,
       [](Plugin& p) { p.replace("a test", std::string(70000, 'x')); }},
      {"the entry function missing", Code::kEntryMissing,
       [](Plugin& p) { p.symbols = {{"something_else", true, 1}}; }},
      {"the entry function of another major only", Code::kEntryMissing,
       [](Plugin& p) { p.symbols = {{"opdock_plugin_v1", true, 1}}; }},
      {"the entry function undefined", Code::kEntryMissing,
       [](Plugin& p) { p.symbols = {{"opdock_plugin_v0", false, 1}}; }},
      {"the entry function local", Code::kEntryMissing,
       [](Plugin& p) { p.symbols = {{"opdock_plugin_v0", true, 0}}; }},
      {"no dynamic symbols", Code::kEntryMissing, [](Plugin& p) { p.symbols.clear(); }},
      {"an x86-64 note in an aarch64 file", Code::kClaimMachine,
       [](Plugin& p) { p.machine = 183; }},
      {"an aarch64 note in an x86-64 file", Code::kClaimMachine,
       [](Plugin& p) { p.replace(R"("x86_64","level":1)", R"("aarch64","level":0)"); }},
  };
}

}  // namespace opdock_test
