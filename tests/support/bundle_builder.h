// Builds HIP's offload bundles byte by byte. Shares no code with the reader under test.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <zlib.h>
#include <zstd.h>

#include <string>
#include <utility>
#include <vector>

#include "support/image_builder.h"

namespace opdock_test {

// Builds a bundle of {target, code object} entries. Each code object starts on a page boundary,
// where clang puts it.
inline Bytes hip_bundle(const std::vector<std::pair<std::string, Bytes>>& entries) {
  Bytes b("__CLANG_OFFLOAD_BUNDLE__");
  b.u64(24, entries.size());
  size_t heads = 32;
  for (const auto& [target, object] : entries) heads += 24 + target.size();
  size_t at = 32, data = (heads + 4095) / 4096 * 4096;
  for (const auto& [target, object] : entries) {
    b.u64(at, data).u64(at + 8, object.size()).u64(at + 16, target.size()).text(at + 24, target);
    at += 24 + target.size();
    if (object.size() != 0) {
      b.u8(data + object.size() - 1, 0);
      b.text(data, std::string(object.data.begin(), object.data.end()));
    }
    data += (object.size() + 4095) / 4096 * 4096;
  }
  return b;
}

enum class Compression { kZlib = 0, kZstd = 1 };

inline Bytes compress(Compression compression, const Bytes& plain) {
  Bytes out;
  if (compression == Compression::kZstd) {
    out.grow(ZSTD_compressBound(plain.size()));
    out.data.resize(ZSTD_compress(out.data.data(), out.size(), plain.data.data(), plain.size(), 3));
  } else {
    uLongf size = compressBound(static_cast<uLong>(plain.size()));
    out.grow(size);
    if (::compress(out.data.data(), &size, plain.data.data(), static_cast<uLong>(plain.size())) !=
        Z_OK) {
      std::abort();
    }
    out.data.resize(size);
  }
  return out;
}

// Puts the header of clang's compressed format `version` (1, 2 or 3) before the compressed bytes.
inline Bytes compressed_bundle(unsigned version, unsigned method, uint64_t plain_size,
                               const Bytes& compressed) {
  Bytes b("CCOB");
  b.u16(4, version).u16(6, method);
  const size_t width = version == 3 ? 8 : 4;
  const size_t head = version == 1 ? 20 : version == 2 ? 24 : 32;
  if (version > 1) b.put(8, head + compressed.size(), width);
  b.put(head - 8 - width, plain_size, width).u64(head - 8, 0x1122334455667788);
  b.add(compressed);
  return b;
}

inline Bytes compressed_bundle(unsigned version, Compression compression, const Bytes& plain) {
  return compressed_bundle(version, static_cast<unsigned>(compression), plain.size(),
                           compress(compression, plain));
}

}  // namespace opdock_test
