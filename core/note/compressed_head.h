// Decompresses the beginning of compressed data, only as far as it is read.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "note/reader.h"

namespace opdock {

// Gives access to the first bytes, at most 1 MiB, that the `size` bytes at `offset` of the reader's
// file decompress to. The caller owns the reader. Never throws because of the file's contents. Not
// thread-safe.
class CompressedHead {
 public:
  enum class Method { kZlib, kZstd };
  CompressedHead(FileReader* reader, Method method, uint64_t offset, uint64_t size);
  ~CompressedHead();

  // Copies `bytes` decompressed bytes from position `at`. Returns false if they are not available:
  // because the compressed bytes are damaged or end or, if at_limit(), for a reason that says
  // nothing about them: a limit was reached, memory was short, or the file could not be read.
  bool read(uint64_t at, void* out, size_t bytes);
  bool at_limit() const { return at_limit_; }
  size_t num_decompressed() const { return bytes_.size(); }

 private:
  struct Stream;  // zlib's or zstd's
  bool decompress(size_t wanted);
  bool take_piece();

  FileReader* reader_;
  // The offset of the next compressed piece, and the number of compressed bytes from there on.
  uint64_t next_, left_;
  std::vector<uint8_t> piece_, bytes_;
  std::unique_ptr<Stream> stream_;
  bool at_limit_ = false;
};

}  // namespace opdock
