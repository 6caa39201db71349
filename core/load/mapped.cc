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
#include "opdock/plugin.h"

namespace opdock {
namespace {

// The segments of one object; their addresses are relative to `base`.
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

// Returns true if one PT_LOAD segment maps [address, address + size).
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

}  // namespace

std::span<const uint8_t> mapped_images(void* handle, const FileFacts& file,
                                       std::vector<Reason>* reasons) {
  const Segments segments = segments_of(handle);
  const uint64_t note = segments.base + file.note_address;
  if (!is_mapped(segments, note, sizeof(NoteHead))) {
    reasons->push_back(make_reason(Code::kNoteMissing, "no note in the loaded object",
                                   "the note that was checked"));
    return {};
  }
  NoteHead head;
  std::memcpy(&head, reinterpret_cast<const void*>(note), sizeof head);
  if (head.build_hash != file.note->head.build_hash) {
    reasons->push_back(
        make_reason(Code::kFileChanged, "another build in memory", "the build that was checked"));
    return {};
  }
  const ImageTablePlace& table = file.image_table;
  if (table.size == 0) return {};
  // The symbol is this object's own if its address is the one that the file states.
  const uint64_t address = segments.base + table.address;
  if (reinterpret_cast<uint64_t>(dlsym(handle, OPDOCK_IMAGES_NAME)) != address ||
      !is_mapped(segments, address, table.size)) {
    reasons->push_back(make_reason(Code::kImageTable,
                                   "no " OPDOCK_IMAGES_NAME " where the file has its image table",
                                   "the table in a segment that is loaded"));
    return {};
  }
  return {reinterpret_cast<const uint8_t*>(address), table.size};
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
