// SPDX-License-Identifier: Apache-2.0
#include "note/device_bundles.h"

#include <algorithm>
#include <cstring>

namespace opdock {
namespace {

constexpr uint64_t kStep = 8;  // containers are aligned to at least 8 bytes
constexpr size_t kPiece = 1 << 20;
constexpr size_t kMaxBundled = 65536;

bool has_magic(const uint8_t* bytes) {
  return std::memcmp(bytes, &kFatbinMagic, 4) == 0 || std::memcmp(bytes, kBundleMagic, 4) == 0 ||
         std::memcmp(bytes, kCompressedBundleMagic, 4) == 0;
}

// Ends the compressed bundles that do not state their size at `at`, where the next container
// begins.
void end_at(uint64_t at, std::vector<DeviceImage>* images) {
  for (auto image = images->rbegin(); image != images->rend(); ++image) {
    if (!image->compressed || image->offset >= at || image->size <= at - image->offset) return;
    image->size = at - image->offset;
  }
}

struct Budgets {
  uint64_t bundles = kDecompressionBudget, cubins = kCubinBudget;
};

// `named`: the section's name says that it holds containers, so an unreadable one is a defect.
void scan(const ElfFile& elf, const Extent& extent, bool named, Budgets* budgets,
          std::vector<DeviceImage>* images) {
  std::vector<uint8_t> piece;
  uint64_t piece_at = 0;
  uint64_t at = extent.offset;
  while (at < extent.end() && extent.end() - at >= kStep && images->size() < kMaxBundled) {
    size_t i = static_cast<size_t>(std::min<uint64_t>(at - piece_at, piece.size()));
    while (i + kStep <= piece.size() && !has_magic(piece.data() + i)) i += kStep;
    at = std::max(at, piece_at + i);
    if (i + kStep > piece.size()) {
      const uint64_t data = elf.reader->next_data(at);  // a hole reads as zeros
      if (data >= extent.end()) return;
      at += (data - at) / kStep * kStep;
      piece.resize(static_cast<size_t>(std::min<uint64_t>(kPiece, extent.end() - at)));
      piece_at = at;
      if (!elf.reader->read_exactly(at, piece.data(), piece.size())) return;
      continue;
    }
    uint64_t end = at;
    std::vector<DeviceImage> found;
    const bool good =
        read_fatbin(elf.reader, at, extent.end(), &budgets->cubins, &found, &end) ||
        read_hip_bundle(elf.reader, at, extent.end(), &budgets->bundles, &found, &end);
    if (good || named) {
      end_at(at, images);
      images->insert(images->end(), found.begin(), found.end());
    }
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
  Budgets budgets;
  for (const Section& section : read_sections(elf)) {
    // The device linker's input: the driver never sees it.
    const bool is_input = section.name == "__nv_relfatbin";
    if (section.name != ".nv_fatbin" && section.name != ".hip_fatbin" && !is_input) continue;
    any = true;
    if (is_input) continue;
    scan(elf, section.extent, true, &budgets, images);
  }
  if (any || by_name_alone) return;
  for (const Elf64_Phdr& segment : elf.segments) {
    if (segment.p_type != PT_LOAD || segment.p_offset > elf.reader->size()) continue;
    const uint64_t room = elf.reader->size() - segment.p_offset;
    scan(elf, {segment.p_offset, std::min(segment.p_filesz, room)}, false, &budgets, images);
  }
}

}  // namespace opdock
