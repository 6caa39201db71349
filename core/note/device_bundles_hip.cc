// Parses HIP's offload bundles, plain (__CLANG_OFFLOAD_BUNDLE__) and compressed (CCOB).
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <functional>

#include "note/compressed_head.h"
#include "note/device_bundles.h"
#include "note/image_identity.h"

namespace opdock {
namespace {

constexpr size_t kMagicBytes = sizeof kBundleMagic - 1;
constexpr uint64_t kMaxEntries = 4096;
constexpr uint64_t kBundleAlignment = 4096;

struct BundleEntry {
  uint64_t offset, size;  // in the plain bundle
  std::string arch;       // empty for the host's entry
};

// Copies bytes of the plain bundle to `out`; returns false if they are not available.
using ReadBytes = std::function<bool(uint64_t at, void* out, size_t bytes)>;

// Returns "gfx90a:xnack-" for "hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-", and "" for the host's
// entry.
std::string arch_of(const std::string& target) {
  const size_t at = target.find("amdgcn");
  const size_t gfx = at == std::string::npos ? at : target.find("gfx", at);
  return gfx == std::string::npos ? std::string() : target.substr(gfx);
}

// Reads the table of a plain bundle of `size` bytes. *end is the end of the table or of its last
// image, whichever is later. Returns false if the table is damaged or cannot be read; the entries
// before that are kept.
bool read_entries(const ReadBytes& read, uint64_t size, std::vector<BundleEntry>* entries,
                  uint64_t* end) {
  uint64_t count = 0;
  uint64_t next = kMagicBytes;
  if (size < next + sizeof count || !read(next, &count, sizeof count) || count > kMaxEntries) {
    return false;
  }
  next += sizeof count;
  *end = next;
  for (uint64_t i = 0; i < count; ++i) {
    struct {
      uint64_t offset, size, target_size;
    } head;
    if (size - next < sizeof head || !read(next, &head, sizeof head)) return false;
    next += sizeof head;
    constexpr uint64_t kMaxTarget = 256;
    if (head.target_size > kMaxTarget || head.target_size > size - next || head.offset > size ||
        head.size > size - head.offset) {
      return false;
    }
    std::string target(head.target_size, '\0');
    if (!read(next, target.data(), target.size())) return false;
    next += head.target_size;
    *end = std::max({*end, next, head.offset + head.size});
    entries->push_back({head.offset, head.size, arch_of(target)});
  }
  return true;
}

DeviceImage image_at(uint64_t offset, uint64_t size, const std::string& arch) {
  DeviceImage image{};
  image.backend = Backend::kRocm;
  image.kind = ImageKind::kCodeObject;
  image.arch = arch;
  image.offset = offset;
  image.size = size;
  return image;
}

bool read_plain(FileReader* reader, uint64_t at, uint64_t limit, std::vector<DeviceImage>* images,
                uint64_t* end) {
  const ReadBytes read = [&](uint64_t where, void* out, size_t bytes) {
    return reader->read(at + where, out, bytes);
  };
  std::vector<BundleEntry> entries;
  const bool good = read_entries(read, limit - at, &entries, end);
  *end += at;
  for (const BundleEntry& entry : entries) {
    if (entry.arch.empty() || entry.size == 0) continue;
    DeviceImage image = image_at(at + entry.offset, entry.size, entry.arch);
    std::string problem;
    const std::optional<ImageIdentity> shown =
        identify_image(reader, image.kind, image.offset, image.size, &problem);
    if (shown && !shown->arch.empty() && shown->arch != entry.arch) {
      image.claimed_arch = entry.arch;
      image.arch = shown->arch;
    }
    images->push_back(std::move(image));
  }
  return good;
}

// The header of a compressed bundle. After the magic it has these little-endian numbers, without
// padding: version and method (16 bits each); the size of the whole compressed bundle (not in
// version 1) and the size of the plain bundle (each 32 bits in versions 1 and 2, 64 bits in version
// 3); and a hash (64 bits).
struct CompressedBundle {
  uint16_t version = 0, method = 0;
  uint64_t head_size = 0, size = 0, plain_size = 0;
};

// Returns false if the header is damaged. For a version newer than 3, only the version and the
// method are read, and head_size stays 0.
bool read_compressed_head(FileReader* reader, uint64_t at, uint64_t limit,
                          CompressedBundle* bundle) {
  uint64_t next = at + sizeof kCompressedBundleMagic - 1;
  const auto take = [&](auto* number, size_t bytes) {
    *number = 0;
    if (limit - next < bytes || !reader->read(next, number, bytes)) return false;
    next += bytes;
    return true;
  };
  if (!take(&bundle->version, 2) || !take(&bundle->method, 2)) return false;
  constexpr unsigned kMaxVersions = 255;  // greater: other data that begins with the magic
  if (bundle->version < 1 || bundle->version > kMaxVersions) return false;
  bundle->size = limit - at;
  if (bundle->version > 3) return true;
  const size_t width = bundle->version == 3 ? 8 : 4;
  if (bundle->version > 1 && !take(&bundle->size, width)) return false;
  uint64_t hash;
  if (!take(&bundle->plain_size, width) || !take(&hash, sizeof hash)) return false;
  bundle->head_size = next - at;
  return bundle->size >= bundle->head_size && bundle->size <= limit - at;
}

// Reads the table of a compressed bundle. Its code objects are not examined, since they may be
// anywhere in megabytes of data: an image's architecture is what the table says.
bool read_compressed(FileReader* reader, uint64_t at, uint64_t limit, uint64_t* budget,
                     std::vector<DeviceImage>* images, uint64_t* end) {
  CompressedBundle bundle;
  if (!read_compressed_head(reader, at, limit, &bundle)) return false;
  // A bundle that does not state its size ends where the next one begins. clang aligns each bundle
  // to a page, so the search goes on one page later. It must not go on earlier: the magic of the
  // plain bundle may appear uncompressed in the first compressed bytes.
  const bool says_end = bundle.version == 2 || bundle.version == 3;
  *end = says_end ? at + bundle.size : std::min(at + kBundleAlignment, limit);
  const auto add = [&](const std::string& arch) {
    images->push_back(image_at(at, bundle.size, arch));
    images->back().compressed = true;
  };
  const bool known = bundle.head_size != 0 && bundle.method <= 1;
  if (!known || *budget == 0) {
    add("");
    return true;
  }
  using Method = CompressedHead::Method;
  CompressedHead head(reader, bundle.method == 0 ? Method::kZlib : Method::kZstd,
                      at + bundle.head_size, bundle.size - bundle.head_size);
  const ReadBytes read = [&](uint64_t where, void* out, size_t bytes) {
    return head.read(where, out, bytes);
  };
  char magic[kMagicBytes];
  std::vector<BundleEntry> entries;
  uint64_t plain_end = 0;
  const bool is_bundle =
      read(0, magic, sizeof magic) && std::memcmp(magic, kBundleMagic, sizeof magic) == 0;
  const bool good = is_bundle && read_entries(read, bundle.plain_size, &entries, &plain_end);
  constexpr uint64_t kMinCost = 4096;  // the cost of setting up a stream, and its first block
  *budget -= std::min(*budget, std::max<uint64_t>(kMinCost, head.num_decompressed()));
  if (!good) {
    add("");
    return head.at_limit();
  }
  for (const BundleEntry& entry : entries) {
    if (!entry.arch.empty() && entry.size != 0) add(entry.arch);
  }
  return true;
}

}  // namespace

bool read_hip_bundle(FileReader* reader, uint64_t at, uint64_t limit, uint64_t* budget,
                     std::vector<DeviceImage>* images, uint64_t* end) {
  char magic[kMagicBytes] = {};
  if (at > limit || limit - at < sizeof magic || !reader->read(at, magic, sizeof magic)) {
    return false;
  }
  if (std::memcmp(magic, kBundleMagic, sizeof magic) == 0) {
    return read_plain(reader, at, limit, images, end);
  }
  if (std::memcmp(magic, kCompressedBundleMagic, 4) == 0) {
    return read_compressed(reader, at, limit, budget, images, end);
  }
  return false;
}

}  // namespace opdock
