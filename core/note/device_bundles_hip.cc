// HIP's offload bundles, plain (__CLANG_OFFLOAD_BUNDLE__) and compressed (CCOB).
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "note/device_bundles.h"
#include "note/image_identity.h"

namespace opdock {
namespace {

constexpr size_t kMagicBytes = sizeof kBundleMagic - 1;
constexpr uint64_t kMaxEntries = 4096;

// "gfx90a:xnack-" of "hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-"; empty for the host's entry.
std::string arch_of(const std::string& target) {
  const size_t at = target.find("amdgcn");
  const size_t gfx = at == std::string::npos ? at : target.find("gfx", at);
  return gfx == std::string::npos ? std::string() : target.substr(gfx);
}

bool read_plain(FileReader* reader, uint64_t at, uint64_t limit, std::vector<DeviceImage>* images,
                uint64_t* end) {
  uint64_t count = 0;
  uint64_t next = at + kMagicBytes;
  if (limit - at < kMagicBytes + sizeof count || !reader->read(next, &count) ||
      count > kMaxEntries) {
    return false;
  }
  next += sizeof count;
  *end = next;
  for (uint64_t i = 0; i < count; ++i) {
    struct {
      uint64_t offset, size, target_size;
    } entry;
    if (limit - next < sizeof entry || !reader->read(next, &entry)) return false;
    next += sizeof entry;
    constexpr uint64_t kMaxTarget = 256;
    if (entry.target_size > kMaxTarget || entry.target_size > limit - next ||
        entry.offset > limit - at || entry.size > limit - at - entry.offset) {
      return false;
    }
    std::string target(entry.target_size, '\0');
    if (!reader->read(next, target.data(), target.size())) return false;
    next += entry.target_size;
    *end = std::max({*end, next, at + entry.offset + entry.size});
    const std::string arch = arch_of(target);
    if (arch.empty() || entry.size == 0) continue;
    DeviceImage image{};
    image.backend = Backend::kRocm;
    image.kind = ImageKind::kCodeObject;
    image.arch = arch;
    image.offset = at + entry.offset;
    image.size = entry.size;
    std::string problem;
    const std::optional<ImageIdentity> shown =
        identify_image(reader, image.kind, image.offset, image.size, &problem);
    if (shown && !shown->arch.empty() && shown->arch != arch) {
      image.claimed_arch = arch;
      image.arch = shown->arch;
    }
    images->push_back(std::move(image));
  }
  return true;
}

// Head: magic, version and method (16 bits each), then the total size: 32 bits in version 2, 64 in
// version 3, absent in version 1.
bool read_compressed(FileReader* reader, uint64_t at, uint64_t limit,
                     std::vector<DeviceImage>* images, uint64_t* end) {
  struct {
    char magic[4];
    uint16_t version, method;
    uint32_t size_low, size_high;
  } head;
  if (limit - at < sizeof head || !reader->read(at, &head)) return false;
  uint64_t size = limit - at;
  if (head.version == 2) size = head.size_low;
  if (head.version == 3) size = head.size_low | uint64_t{head.size_high} << 32;
  if (head.version < 1 || head.version > 3 || size < sizeof head || size > limit - at) return false;
  DeviceImage image{};
  image.backend = Backend::kRocm;
  image.kind = ImageKind::kCodeObject;
  image.compressed = true;
  image.offset = at;
  image.size = size;
  images->push_back(std::move(image));
  *end = at + size;
  return true;
}

}  // namespace

bool read_hip_bundle(FileReader* reader, uint64_t at, uint64_t limit,
                     std::vector<DeviceImage>* images, uint64_t* end) {
  char magic[kMagicBytes] = {};
  if (at > limit || limit - at < sizeof magic || !reader->read(at, magic, sizeof magic)) {
    return false;
  }
  if (std::memcmp(magic, kBundleMagic, sizeof magic) == 0) {
    return read_plain(reader, at, limit, images, end);
  }
  if (std::memcmp(magic, kCompressedBundleMagic, 4) == 0) {
    return read_compressed(reader, at, limit, images, end);
  }
  return false;
}

}  // namespace opdock
