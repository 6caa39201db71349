// SPDX-License-Identifier: Apache-2.0
#include "note/build_id.h"

#include <elf.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "base/sha256.h"

namespace opdock {
namespace {

constexpr size_t kMaxNoteSegmentBytes = 65536;

bool read_at(int fd, uint64_t offset, void* out, size_t size) {
  return pread(fd, out, size, static_cast<off_t>(offset)) == static_cast<ssize_t>(size);
}

// Returns the descriptor of the note with owner "GNU" and type NT_GNU_BUILD_ID in a segment's
// notes.
std::string build_id_among(const std::vector<uint8_t>& notes) {
  size_t at = 0;
  while (at + sizeof(Elf64_Nhdr) <= notes.size()) {
    Elf64_Nhdr head;
    std::memcpy(&head, notes.data() + at, sizeof head);
    const uint64_t name = at + sizeof head;
    const uint64_t bytes = name + ((uint64_t{head.n_namesz} + 3) & ~uint64_t{3});
    const uint64_t next = bytes + ((uint64_t{head.n_descsz} + 3) & ~uint64_t{3});
    if (next > notes.size()) return {};
    if (head.n_type == NT_GNU_BUILD_ID && head.n_namesz == 4 &&
        std::memcmp(notes.data() + name, "GNU", 4) == 0) {
      return to_hex({notes.data() + bytes, head.n_descsz});
    }
    at = next;
  }
  return {};
}

}  // namespace

std::string build_id(int fd) {
  Elf64_Ehdr header;
  if (!read_at(fd, 0, &header, sizeof header) ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_phentsize != sizeof(Elf64_Phdr)) {
    return {};
  }
  for (size_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    if (!read_at(fd, header.e_phoff + i * sizeof segment, &segment, sizeof segment)) return {};
    if (segment.p_type != PT_NOTE || segment.p_filesz > kMaxNoteSegmentBytes) continue;
    std::vector<uint8_t> notes(segment.p_filesz);
    if (!read_at(fd, segment.p_offset, notes.data(), notes.size())) return {};
    if (std::string id = build_id_among(notes); !id.empty()) return id;
  }
  return {};
}

}  // namespace opdock
