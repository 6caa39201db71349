// SPDX-License-Identifier: Apache-2.0
#include "note/elf_notes.h"

#include <algorithm>
#include <cstring>

namespace opdock {
namespace {

// Where a descriptor lies in the file.
struct Descriptor {
  Extent extent;
  uint64_t address;
};

constexpr unsigned kMaxNotes = 1024;  // of any owner, in one segment

uint64_t align_up(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}

bool is_opdock(const ElfFile& elf, const Elf64_Nhdr& note, uint64_t name_offset) {
  char owner[sizeof kNoteOwner];
  return note.n_namesz == sizeof owner && note.n_type == kNoteType &&
         elf.reader->read(name_offset, owner, sizeof owner) &&
         std::memcmp(owner, kNoteOwner, sizeof owner) == 0;
}

// Appends the Opdock descriptors of one PT_NOTE segment, `extent` of it being inside the file.
void walk_segment(const ElfFile& elf, const Elf64_Phdr& segment, const Extent& extent,
                  std::vector<Descriptor>* found) {
  const uint64_t alignment = segment.p_align == 8 ? 8 : 4;
  uint64_t at = 0;
  for (unsigned count = 0; extent.size - at >= sizeof(Elf64_Nhdr); ++count) {
    if (count == kMaxNotes) {
      elf.defects->add(Code::kNoteMalformed, "more than " + std::to_string(kMaxNotes) + " notes",
                       "a handful");
      return;
    }
    Elf64_Nhdr note;
    if (!elf.reader->read(extent.offset + at, &note)) return;
    const uint64_t name = at + sizeof note;
    // 32-bit sizes added to an offset inside a file: 64 bits do not overflow.
    const uint64_t descriptor = align_up(name + note.n_namesz, alignment);
    const uint64_t end = descriptor + note.n_descsz;
    if (end > extent.size) {
      if (extent.size == segment.p_filesz) {  // otherwise the truncation is already a defect
        elf.defects->add(Code::kNoteMalformed,
                         "a note at " + hex(extent.offset + at) + " with a name of " +
                             std::to_string(note.n_namesz) + " and a descriptor of " +
                             std::to_string(note.n_descsz) + " bytes",
                         "it inside its segment of " + std::to_string(extent.size) + " bytes");
      }
      return;
    }
    if (is_opdock(elf, note, extent.offset + name)) {
      found->push_back({{extent.offset + descriptor, note.n_descsz}, segment.p_vaddr + descriptor});
    }
    at = std::min(align_up(end, alignment), extent.size);
  }
}

// The PT_NOTE segments' file parts, with overlaps made a defect.
std::vector<Descriptor> descriptors(const ElfFile& elf) {
  std::vector<Descriptor> found;
  std::vector<Extent> seen;
  for (const Elf64_Phdr& segment : elf.segments) {
    if (segment.p_type != PT_NOTE || segment.p_filesz == 0) continue;
    const uint64_t size = elf.reader->size();
    if (!elf.reader->contains(segment.p_offset, segment.p_filesz)) {
      elf.defects->add(Code::kElfTruncated, "a note segment at " + hex(segment.p_offset),
                       "it inside the file of " + hex(size) + " bytes");
      if (segment.p_offset >= size) continue;
    }
    const Extent extent{segment.p_offset, std::min(segment.p_filesz, size - segment.p_offset)};
    const bool overlaps = std::any_of(seen.begin(), seen.end(), [&](const Extent& other) {
      return extent.offset < other.end() && other.offset < extent.end();
    });
    if (overlaps) {
      elf.defects->add(Code::kElfMalformed,
                       "two note segments that overlap at " + hex(extent.offset), "separate ones");
      continue;
    }
    seen.push_back(extent);
    walk_segment(elf, segment, extent, &found);
  }
  return found;
}

void report_missing(const ElfFile& elf) {
  // What is cut off or garbled may have been the note.
  if (elf.defects->has(Code::kElfTruncated) || elf.defects->has(Code::kNoteMalformed)) return;
  const std::vector<Section> sections = read_sections(elf);
  if (std::any_of(sections.begin(), sections.end(),
                  [](const Section& section) { return section.name == ".note.opdock"; })) {
    elf.defects->add(Code::kNoteNotInSegment, "a section .note.opdock outside every PT_NOTE",
                     "a PT_NOTE segment that covers it");
  } else {
    elf.defects->add(Code::kNoteMissing, "no note of owner \"opdock\"", "one");
  }
}

}  // namespace

std::optional<FoundNote> find_note(const ElfFile& elf) {
  const std::vector<Descriptor> found = descriptors(elf);
  if (found.empty()) {
    report_missing(elf);
    return std::nullopt;
  }
  if (found.size() > 1) {
    elf.defects->add(Code::kNoteDuplicate,
                     std::to_string(found.size()) + " notes, at " + hex(found[0].extent.offset) +
                         " and " + hex(found[1].extent.offset),
                     "one");
    return std::nullopt;
  }
  const Descriptor& descriptor = found.front();
  if (descriptor.extent.size > kMaxNoteBytes) {
    elf.defects->add(Code::kNoteTooLarge,
                     "a note of " + std::to_string(descriptor.extent.size) + " bytes",
                     "at most " + std::to_string(kMaxNoteBytes));
    return std::nullopt;
  }
  std::vector<uint8_t> bytes(descriptor.extent.size);
  if (!elf.reader->read(descriptor.extent.offset, bytes.data(), bytes.size())) return std::nullopt;
  std::vector<Reason> reasons;
  std::optional<Note> note = read_note(bytes, &reasons);
  for (Reason& reason : reasons) {
    elf.defects->add(reason.code, std::move(reason.found), std::move(reason.wanted));
  }
  if (!note) return std::nullopt;
  // The image table is found through the descriptor's address, so the segment must be mapped there.
  const bool mapped =
      elf.to_offset(descriptor.address, descriptor.extent.size) == descriptor.extent.offset;
  return FoundNote{std::move(*note), mapped ? descriptor.address : 0};
}

}  // namespace opdock
