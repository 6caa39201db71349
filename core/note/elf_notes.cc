// SPDX-License-Identifier: Apache-2.0
#include "note/elf_notes.h"

#include <algorithm>
#include <cstring>

namespace opdock {
namespace {

// Limit for all PT_NOTE segments together; usual ones have a few hundred bytes.
constexpr uint64_t kMaxSearchedBytes = 4 << 20;

// The header of an Opdock note, and where it is.
struct Header {
  Elf64_Nhdr note;
  uint64_t offset;   // in the file
  uint64_t address;  // virtual
  uint64_t room;     // from here to the end of its segment, or of the file
  uint64_t alignment;
};

// Appends the headers of Opdock's notes in `bytes`, the part of `segment` that is inside the file,
// up to two in all. Examines every multiple of 4 bytes instead of walking from note to note:
// loaders ignore notes of other owners whose size or alignment is wrong, which would mislead such a
// walk.
void search_segment(const Elf64_Phdr& segment, const std::vector<uint8_t>& bytes,
                    std::vector<Header>* found) {
  constexpr size_t kHeaderBytes = sizeof(Elf64_Nhdr) + sizeof kNoteOwner;
  for (size_t at = 0; at + kHeaderBytes <= bytes.size() && found->size() < 2; at += 4) {
    const uint8_t* const begin = bytes.data() + at;
    if (std::memcmp(begin + sizeof(Elf64_Nhdr), kNoteOwner, sizeof kNoteOwner) != 0) continue;
    Header header{{},
                  segment.p_offset + at,
                  segment.p_vaddr + at,
                  bytes.size() - at,
                  segment.p_align == 8 ? uint64_t{8} : uint64_t{4}};
    std::memcpy(&header.note, begin, sizeof header.note);
    const bool known = std::any_of(  // segments may overlap
        found->begin(), found->end(),
        [&](const Header& other) { return other.offset == header.offset; });
    if (header.note.n_type == kNoteType && !known) found->push_back(header);
  }
}

std::vector<Header> search_segments(const ElfFile& elf) {
  std::vector<Header> found;
  uint64_t left = kMaxSearchedBytes;
  for (const Elf64_Phdr& segment : elf.segments) {
    if (segment.p_type != PT_NOTE || segment.p_filesz == 0) continue;
    const uint64_t size = elf.reader->size();
    if (!elf.reader->contains(segment.p_offset, segment.p_filesz)) {
      elf.defects->add(Code::kElfTruncated, "a note segment at " + hex(segment.p_offset),
                       "it inside the file of " + hex(size) + " bytes");
      if (segment.p_offset >= size) continue;
    }
    std::vector<uint8_t> bytes(std::min({segment.p_filesz, size - segment.p_offset, left}));
    if (!elf.reader->read(segment.p_offset, bytes.data(), bytes.size())) return found;
    search_segment(segment, bytes, &found);
    left -= bytes.size();
  }
  return found;
}

void report_missing(const ElfFile& elf) {
  // The note may have been in the part that is cut off.
  if (elf.defects->has(Code::kElfTruncated)) return;
  const std::vector<Section> sections = read_sections(elf);
  const auto section = std::find_if(sections.begin(), sections.end(),
                                    [](const Section& one) { return one.name == ".note.opdock"; });
  if (section == sections.end()) {
    elf.defects->add(Code::kNoteMissing, "no note of owner \"opdock\"", "one");
    return;
  }
  const bool covered =
      std::any_of(elf.segments.begin(), elf.segments.end(), [&](const Elf64_Phdr& segment) {
        return segment.p_type == PT_NOTE && section->extent.offset >= segment.p_offset &&
               section->extent.offset - segment.p_offset < segment.p_filesz;
      });
  if (covered) {
    elf.defects->add(Code::kNoteMalformed, "a section .note.opdock without Opdock's note",
                     "a note of owner \"opdock\" and type " + std::to_string(kNoteType));
  } else {
    elf.defects->add(Code::kNoteNotInSegment, "a section .note.opdock outside every PT_NOTE",
                     "a PT_NOTE segment that covers it");
  }
}

// Returns the distance from the note's header to its descriptor. The descriptor follows the name,
// padded to the segment's alignment. Tools that merge notes of both alignments may have used the
// other one, which counts if a head of this version is only there.
uint64_t descriptor_distance(const ElfFile& elf, const Header& header) {
  const auto distance = [](uint64_t alignment) {
    return (sizeof(Elf64_Nhdr) + sizeof kNoteOwner + alignment - 1) / alignment * alignment;
  };
  const uint64_t usual = distance(header.alignment);
  for (const uint64_t at : {usual, distance(header.alignment == 8 ? 4 : 8)}) {
    uint16_t version_and_size[2] = {};
    if (at + sizeof(NoteHead) <= header.room &&
        elf.reader->read(header.offset + at, &version_and_size) &&
        version_and_size[0] == kNoteVersion && version_and_size[1] >= sizeof(NoteHead)) {
      return at;
    }
  }
  return usual;
}

}  // namespace

std::optional<FoundNote> find_note(const ElfFile& elf) {
  const std::vector<Header> found = search_segments(elf);
  if (found.empty()) {
    report_missing(elf);
    return std::nullopt;
  }
  if (found.size() > 1) {
    elf.defects->add(Code::kNoteDuplicate,
                     "notes at " + hex(found[0].offset) + " and " + hex(found[1].offset), "one");
    return std::nullopt;
  }
  const Header& header = found.front();
  const uint64_t distance = descriptor_distance(elf, header);
  const uint64_t size = header.note.n_descsz;
  if (header.note.n_namesz != sizeof kNoteOwner || distance + size > header.room) {
    if (!elf.defects->has(Code::kElfTruncated)) {
      elf.defects->add(Code::kNoteMalformed,
                       "a note at " + hex(header.offset) + " with a name of " +
                           std::to_string(header.note.n_namesz) + " and a descriptor of " +
                           std::to_string(size) + " bytes",
                       "a name of " + std::to_string(sizeof kNoteOwner) +
                           ", and both inside the segment's " + std::to_string(header.room));
    }
    return std::nullopt;
  }
  if (size > kMaxNoteBytes) {
    elf.defects->add(Code::kNoteTooLarge, "a note of " + std::to_string(size) + " bytes",
                     "at most " + std::to_string(kMaxNoteBytes));
    return std::nullopt;
  }
  std::vector<uint8_t> bytes(size);
  const uint64_t offset = header.offset + distance;
  if (!elf.reader->read(offset, bytes.data(), bytes.size())) return std::nullopt;
  std::vector<Reason> reasons;
  std::optional<Note> note = read_note(bytes, &reasons);
  for (Reason& reason : reasons) {
    elf.defects->add(reason.code, std::move(reason.found), std::move(reason.wanted));
  }
  if (!note) return std::nullopt;
  const uint64_t address = header.address + distance;
  if (elf.to_offset(address, size) != offset && !elf.defects->has(Code::kElfTruncated)) {
    elf.defects->add(Code::kNoteNotInSegment, "a note that no PT_LOAD has at its address",
                     "it in memory, where it is compared with the file");
  }
  return FoundNote{std::move(*note), address};
}

}  // namespace opdock
