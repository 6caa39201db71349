// SPDX-License-Identifier: Apache-2.0
#include "load/mapped.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <cstring>

#include "base/loaded_objects.h"
#include "base/sha256.h"
#include "fmt/format.h"
#include "note/image_table.h"

namespace opdock {
namespace {

// The segments of one object; `base` is what its addresses are relative to.
struct Segments {
  ElfW(Addr) base = 0;
  const ElfW(Phdr) * headers = nullptr;
  size_t count = 0;
};

struct Search {
  const link_map* object;
  Segments found;
};

Segments segments_of(void* handle) {
  link_map* object = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &object) != 0 || object == nullptr) return {};
  Search search{object, {}};
  visit_loaded_objects(
      [](dl_phdr_info* info, size_t, void* context) {
        Search* wanted = static_cast<Search*>(context);
        if (info->dlpi_addr != wanted->object->l_addr ||
            std::strcmp(info->dlpi_name, wanted->object->l_name) != 0) {
          return 0;
        }
        wanted->found = {info->dlpi_addr, info->dlpi_phdr, info->dlpi_phnum};
        return 1;
      },
      &search);
  return search.found;
}

// True if [address, address + size) is mapped by one PT_LOAD segment.
bool is_mapped(const Segments& segments, uint64_t address, uint64_t size) {
  for (size_t i = 0; i < segments.count; ++i) {
    const ElfW(Phdr) & segment = segments.headers[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_R) == 0) continue;
    const uint64_t begin = segments.base + segment.p_vaddr;
    if (address >= begin && address - begin <= segment.p_memsz &&
        size <= segment.p_memsz - (address - begin)) {
      return true;
    }
  }
  return false;
}

// The descriptor of the Opdock note in one PT_NOTE segment, or NULL.
const uint8_t* find_note(const uint8_t* at, uint64_t size, uint64_t alignment) {
  const auto padded = [alignment](uint64_t bytes) {
    return (bytes + alignment - 1) / alignment * alignment;
  };
  while (size >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) head;
    std::memcpy(&head, at, sizeof head);
    const uint64_t descriptor = padded(sizeof head + head.n_namesz);
    const uint64_t next = descriptor + padded(head.n_descsz);
    if (descriptor + head.n_descsz > size) return nullptr;
    if (head.n_type == kNoteType && head.n_namesz == sizeof kNoteOwner &&
        std::memcmp(at + sizeof head, kNoteOwner, sizeof kNoteOwner) == 0 &&
        head.n_descsz >= sizeof(NoteHead)) {
      return at + descriptor;
    }
    if (next > size) return nullptr;
    at += next;
    size -= next;
  }
  return nullptr;
}

const uint8_t* find_note(const Segments& segments) {
  for (size_t i = 0; i < segments.count; ++i) {
    const ElfW(Phdr) & segment = segments.headers[i];
    if (segment.p_type != PT_NOTE) continue;
    const uint64_t address = segments.base + segment.p_vaddr;
    if (!is_mapped(segments, address, segment.p_memsz)) continue;
    const uint8_t* note = find_note(reinterpret_cast<const uint8_t*>(address), segment.p_memsz,
                                    segment.p_align == 8 ? 8 : 4);
    if (note != nullptr) return note;
  }
  return nullptr;
}

}  // namespace

std::span<const uint8_t> mapped_images(void* handle, const Note& note,
                                       std::vector<Reason>* reasons) {
  const Segments segments = segments_of(handle);
  const uint8_t* descriptor = find_note(segments);
  if (descriptor == nullptr) {
    reasons->push_back(make_reason(Code::kNoteMissing, "no note in the loaded object",
                                   "the note that was checked"));
    return {};
  }
  NoteHead head;
  std::memcpy(&head, descriptor, sizeof head);
  if (head.build_hash != note.head.build_hash) {
    reasons->push_back(
        make_reason(Code::kFileChanged, "another build in memory", "the build that was checked"));
    return {};
  }
  if (head.images_offset == 0) return {};
  const uint64_t address = reinterpret_cast<uint64_t>(descriptor) +
                           offsetof(NoteHead, images_offset) +
                           static_cast<uint64_t>(head.images_offset);
  if (!is_mapped(segments, address, head.images_size)) {
    reasons->push_back(make_reason(Code::kImageTable, "an image table that is not mapped",
                                   "a table in a segment that is loaded"));
    return {};
  }
  return {reinterpret_cast<const uint8_t*>(address), head.images_size};
}

void check_image_table(std::span<const uint8_t> table, const Note& note,
                       std::vector<Reason>* reasons) {
  if (table.empty()) return;
  std::vector<ImageEntry> entries;
  Reason problem{};
  if (!read_image_entries(table, &entries, &problem)) {
    reasons->push_back(
        make_reason(Code::kImageTable, problem.found + " in memory", problem.wanted));
    return;
  }
  if (entries.size() != note.images.size()) {
    reasons->push_back(make_reason(Code::kImageTable,
                                   fmt::format("{} images in memory", entries.size()),
                                   fmt::format("{}, as the note says", note.images.size())));
    return;
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    const ImageEntry& entry = entries[i];
    const std::string name = fmt::format("image {} ({})", i, note.images[i].arch);
    if (entry.offset > table.size() || entry.size > table.size() - entry.offset) {
      reasons->push_back(
          make_reason(Code::kImageTable, name + " outside the table", "images inside it"));
      continue;
    }
    Digest digest;
    std::memcpy(digest.data(), entry.sha256, digest.size());
    if (to_hex(digest) == note.images[i].sha256) continue;
    reasons->push_back(make_reason(Code::kClaimDigest,
                                   name + " with SHA-256 " + to_hex(digest) + " in the table",
                                   note.images[i].sha256));
  }
}

bool check_image(std::span<const uint8_t> image, const ImageClaim& claim,
                 std::vector<Reason>* reasons) {
  const std::string digest = to_hex(sha256(image));
  if (digest == claim.sha256) return true;
  reasons->push_back(make_reason(
      Code::kClaimDigest, fmt::format("the image for {} with SHA-256 {}", claim.arch, digest),
      claim.sha256));
  return false;
}

}  // namespace opdock
