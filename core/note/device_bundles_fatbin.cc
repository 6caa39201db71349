// Parses nvcc's fat binary: a head, then entries, each with its own head. The layout was learnt
// from nvcc 13.0's output.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>

#include "note/compressed_cubin.h"
#include "note/device_bundles.h"
#include "note/image_identity.h"

namespace opdock {
namespace {

struct FatbinHead {
  uint32_t magic;
  uint16_t version;
  uint16_t head_size;
  uint64_t size;  // of the entries, which follow the head
};

struct FatbinEntry {
  uint16_t kind;
  uint16_t version;
  uint32_t head_size;
  uint64_t size;             // in the file, with padding
  uint32_t compressed_size;  // 0: not compressed
  uint32_t options_offset;
  uint16_t minor;
  uint16_t major;
  uint32_t arch;  // 90 for 9.0
  uint32_t name_offset;
  uint32_t name_size;
  uint64_t flags;
  uint64_t reserved;
  uint64_t plain_size;
};
static_assert(sizeof(FatbinHead) == 16 && sizeof(FatbinEntry) == 64);

constexpr uint16_t kPtx = 1, kCubin = 2;
constexpr uint64_t kLz4 = 0x2000, kZstd = 0x8000;
constexpr uint64_t kAcceleratedArch = 1u << 20, kFamilyArch = 1u << 21;

// Returns the first CUDA release whose tools write, and whose drivers read, this version of the PTX
// ISA. Source: NVIDIA, "PTX ISA", release notes. Empty for versions that they do not list yet.
Version release_of_ptx(unsigned major, unsigned minor) {
  static constexpr unsigned kOfSix[][2] = {{9, 0}, {9, 1}, {9, 2}, {10, 0}, {10, 1}, {10, 2}};
  if (major == 6 && minor < std::size(kOfSix)) return {kOfSix[minor][0], kOfSix[minor][1]};
  if (major == 7 && minor <= 8) return {11, minor};
  if (major == 8 && minor <= 5) return {12, minor};
  if (major == 8 && minor <= 8) return {12, minor + 1};  // CUDA 12.6 writes 8.5, as 12.5 did
  if (major == 9 && minor <= 5) return {13, minor};
  return {};
}

std::optional<ImageIdentity> identity_of(FileReader* reader, const FatbinEntry& entry,
                                         const DeviceImage& image, uint64_t* budget) {
  std::string problem;
  if (!image.compressed) {
    return identify_image(reader, image.kind, image.offset, image.size, &problem);
  }
  if (image.kind != ImageKind::kCubin) return std::nullopt;  // the entry's head says everything
  const bool is_zstd = (entry.flags & kZstd) != 0;
  return identify_compressed_cubin(reader,
                                   is_zstd ? CubinCompression::kZstd : CubinCompression::kLz4,
                                   image.offset, image.size, budget);
}

DeviceImage image_of(FileReader* reader, const FatbinEntry& entry, uint64_t payload,
                     uint64_t* budget) {
  DeviceImage image{};
  image.backend = Backend::kCuda;
  image.kind = entry.kind == kPtx ? ImageKind::kPtx : ImageKind::kCubin;
  image.compressed = (entry.flags & (kLz4 | kZstd)) != 0;
  image.offset = payload;
  image.size = image.compressed && entry.compressed_size != 0 ? entry.compressed_size : entry.size;
  const char* suffix = "";
  if ((entry.flags & kFamilyArch) != 0) suffix = "f";
  if ((entry.flags & kAcceleratedArch) != 0) suffix = "a";
  const std::string claimed = cuda_arch(image.kind, entry.arch, suffix);
  image.arch = claimed;
  // A PTX entry's head holds the version of its ISA; a cubin's does not tell the toolkit.
  if (image.kind == ImageKind::kPtx) image.toolkit = release_of_ptx(entry.major, entry.minor);
  const std::optional<ImageIdentity> shown = identity_of(reader, entry, image, budget);
  if (!shown) return image;
  if (!shown->toolkit.empty()) image.toolkit = shown->toolkit;
  const bool only_suffix_differs =
      !shown->suffix_shown && shown->arch == cuda_arch(image.kind, entry.arch, "");
  if (!shown->arch.empty() && !only_suffix_differs && shown->arch != claimed) {
    image.claimed_arch = claimed;
    image.arch = shown->arch;
  }
  return image;
}

// Fills in the toolkit of PTX whose ISA is newer than release_of_ptx() knows. Such PTX needs no
// newer driver than its compiler's release, which the cubins made along with it show.
void complete_ptx(size_t first, std::vector<DeviceImage>* images) {
  Version newest;
  for (size_t i = first; i < images->size(); ++i) newest = std::max(newest, (*images)[i].toolkit);
  for (size_t i = first; i < images->size(); ++i) {
    DeviceImage& image = (*images)[i];
    if (image.kind == ImageKind::kPtx && image.toolkit.empty()) image.toolkit = newest;
  }
}

}  // namespace

bool read_fatbin(FileReader* reader, uint64_t at, uint64_t limit, uint64_t* budget,
                 std::vector<DeviceImage>* images, uint64_t* end) {
  FatbinHead head;
  if (limit < sizeof head || at > limit - sizeof head || !reader->read(at, &head) ||
      head.magic != kFatbinMagic || head.head_size < sizeof head || head.head_size > limit - at ||
      head.size > limit - at - head.head_size) {
    return false;
  }
  uint64_t next = at + head.head_size;
  *end = next + head.size;
  const size_t first = images->size();
  while (*end - next >= sizeof(FatbinEntry)) {
    FatbinEntry entry;
    if (!reader->read(next, &entry)) return false;
    if (entry.head_size < sizeof entry || entry.head_size > *end - next ||
        entry.size > *end - next - entry.head_size || entry.compressed_size > entry.size) {
      return false;
    }
    if (entry.kind == kPtx || entry.kind == kCubin) {  // other kinds: link-time code, debug data
      images->push_back(image_of(reader, entry, next + entry.head_size, budget));
    }
    next += entry.head_size + entry.size;
  }
  complete_ptx(first, images);
  return true;
}

}  // namespace opdock
