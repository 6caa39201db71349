// The beginning of what was compressed, decompressed no further than somebody asks for.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "note/reader.h"

namespace opdock {

// The first MiB, at most, of what the `size` bytes at `offset` of the reader's file (the caller's)
// decompress to. Never throws for what they hold. Not thread-safe.
class CompressedHead {
 public:
  enum class Method { kZlib, kZstd };
  CompressedHead(FileReader* reader, Method method, uint64_t offset, uint64_t size);
  ~CompressedHead();

  // Copies out `bytes` at `at` of the decompressed bytes. False if they cannot be had: because the
  // compressed bytes are damaged or end, unless at_limit(): then nothing is known against them.
  bool read(uint64_t at, void* out, size_t bytes);
  bool at_limit() const { return at_limit_; }
  size_t num_decompressed() const { return bytes_.size(); }

 private:
  struct Stream;  // zlib's or zstd's
  bool decompress(size_t wanted);
  bool take_piece();

  FileReader* reader_;
  uint64_t next_, left_;  // of the compressed bytes: where the next piece begins, and what is left
  std::vector<uint8_t> piece_, bytes_;
  std::unique_ptr<Stream> stream_;
  bool at_limit_ = false;
};

}  // namespace opdock
