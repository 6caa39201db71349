// SPDX-License-Identifier: Apache-2.0
#include "note/device_bundles.h"

#include <algorithm>
#include <cstring>

namespace opdock {
namespace {

constexpr uint64_t kStep = 8;  // containers are aligned to 8 bytes at least
constexpr size_t kPiece = 1 << 20;
constexpr size_t kMaxBundled = 65536;

bool has_magic(const uint8_t* bytes) {
  return std::memcmp(bytes, &kFatbinMagic, 4) == 0 || std::memcmp(bytes, kBundleMagic, 4) == 0 ||
         std::memcmp(bytes, kCompressedBundleMagic, 4) == 0;
}

// `named`: the section is said to hold containers, so one that cannot be read is a defect.
void scan(const ElfFile& elf, const Extent& extent, bool named, std::vector<DeviceImage>* images) {
  std::vector<uint8_t> piece;
  uint64_t at = extent.offset;
  while (at < extent.end() && extent.end() - at >= kStep && images->size() < kMaxBundled) {
    piece.resize(static_cast<size_t>(std::min<uint64_t>(kPiece, extent.end() - at)));
    if (!elf.reader->read_exactly(at, piece.data(), piece.size())) return;
    const size_t usable = piece.size() / kStep * kStep;
    size_t i = 0;
    while (i < usable && !has_magic(piece.data() + i)) i += kStep;
    at += i;
    if (i == usable) continue;
    uint64_t end = at;
    std::vector<DeviceImage> found;
    const bool good = read_fatbin(elf.reader, at, extent.end(), &found, &end) ||
                      read_hip_bundle(elf.reader, at, extent.end(), &found, &end);
    if (good || named) images->insert(images->end(), found.begin(), found.end());
    if (!good && named) {
      elf.defects->add(Code::kImageTable, "a damaged fat binary at " + hex(at),
                       "one whose entries lie inside it");
    }
    const uint64_t behind = good ? std::max(end, at + kStep) : at + kStep;
    at = extent.offset + (behind - extent.offset + kStep - 1) / kStep * kStep;
  }
}

}  // namespace

void find_device_bundles(const ElfFile& elf, bool by_name_alone, std::vector<DeviceImage>* images) {
  bool any = false;
  for (const Section& section : read_sections(elf)) {
    if (section.name != ".nv_fatbin" && section.name != "__nv_relfatbin" &&
        section.name != ".hip_fatbin") {
      continue;
    }
    any = true;
    scan(elf, section.extent, true, images);
  }
  if (any || by_name_alone) return;
  for (const Elf64_Phdr& segment : elf.segments) {
    if (segment.p_type != PT_LOAD || segment.p_offset > elf.reader->size()) continue;
    const uint64_t room = elf.reader->size() - segment.p_offset;
    scan(elf, {segment.p_offset, std::min(segment.p_filesz, room)}, false, images);
  }
}

}  // namespace opdock
