// SPDX-License-Identifier: Apache-2.0
#include "note/compressed_head.h"

#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>

namespace opdock {
namespace {

constexpr uint64_t kMaxDecompressed = 1 << 20;
constexpr size_t kCompressedPiece = 16384;
// The largest window that clang writes, and zstd's own default. Only as much memory as is written
// is touched.
constexpr int kWindowLog = 27;

enum class StreamStep { kGood, kEnd, kDamaged, kLimit };

}  // namespace

struct CompressedHead::Stream {
  explicit Stream(Method method) : method(method) {
    if (method == Method::kZlib) {
      ready = ::inflateInit(&zlib) == Z_OK;
    } else {
      zstd = ZSTD_createDStream();
      ready = zstd != nullptr &&
              ZSTD_isError(ZSTD_DCtx_setParameter(zstd, ZSTD_d_windowLogMax, kWindowLog)) == 0;
    }
  }
  ~Stream() {
    if (method == Method::kZlib) ::inflateEnd(&zlib);
    ZSTD_freeDStream(zstd);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Consumes from `in` and appends to `out`, both starting at their `pos`.
  StreamStep step(ZSTD_inBuffer* in, ZSTD_outBuffer* out) {
    if (method == Method::kZstd) {
      const size_t result = ZSTD_decompressStream(zstd, out, in);
      if (result == 0) return StreamStep::kEnd;
      if (ZSTD_isError(result) == 0) return StreamStep::kGood;
      const ZSTD_ErrorCode code = ZSTD_getErrorCode(result);
      const bool limit =
          code == ZSTD_error_frameParameter_windowTooLarge || code == ZSTD_error_memory_allocation;
      return limit ? StreamStep::kLimit : StreamStep::kDamaged;
    }
    zlib.next_in = const_cast<Bytef*>(static_cast<const Bytef*>(in->src) + in->pos);
    zlib.avail_in = static_cast<uInt>(in->size - in->pos);
    zlib.next_out = static_cast<Bytef*>(out->dst) + out->pos;
    zlib.avail_out = static_cast<uInt>(out->size - out->pos);
    const int result = ::inflate(&zlib, Z_NO_FLUSH);
    in->pos = in->size - zlib.avail_in;
    out->pos = out->size - zlib.avail_out;
    if (result == Z_OK || result == Z_BUF_ERROR) return StreamStep::kGood;
    if (result == Z_STREAM_END) return StreamStep::kEnd;
    return result == Z_MEM_ERROR ? StreamStep::kLimit : StreamStep::kDamaged;
  }

  Method method;
  bool ready = false;
  z_stream zlib{};
  ZSTD_DStream* zstd = nullptr;
  ZSTD_inBuffer in{nullptr, 0, 0};
};

CompressedHead::CompressedHead(FileReader* reader, Method method, uint64_t offset, uint64_t size)
    : reader_(reader), next_(offset), left_(size), stream_(std::make_unique<Stream>(method)) {
  at_limit_ = !stream_->ready;
}

CompressedHead::~CompressedHead() = default;

bool CompressedHead::read(uint64_t at, void* out, size_t bytes) {
  if (at > kMaxDecompressed || bytes > kMaxDecompressed - at) at_limit_ = true;
  if (at_limit_ || !stream_) return false;
  const size_t end = static_cast<size_t>(at) + bytes;
  if (end > bytes_.size() && !decompress(end)) return false;
  std::copy_n(bytes_.begin() + static_cast<ptrdiff_t>(at), bytes, static_cast<uint8_t*>(out));
  return true;
}

bool CompressedHead::take_piece() {
  piece_.resize(static_cast<size_t>(std::min<uint64_t>(kCompressedPiece, left_)));
  if (!reader_->read_exactly(next_, piece_.data(), piece_.size())) return false;
  next_ += piece_.size();
  left_ -= piece_.size();
  stream_->in = {piece_.data(), piece_.size(), 0};
  return true;
}

bool CompressedHead::decompress(size_t wanted) {
  ZSTD_outBuffer out{nullptr, wanted, bytes_.size()};
  bytes_.resize(wanted);
  out.dst = bytes_.data();
  StreamStep step = StreamStep::kGood;
  while (out.pos < wanted && step == StreamStep::kGood) {
    ZSTD_inBuffer& in = stream_->in;
    if (in.pos == in.size && left_ > 0 && !take_piece()) break;
    const size_t had = out.pos;
    const bool no_more = in.pos == in.size;
    step = stream_->step(&in, &out);
    if (no_more && out.pos == had && step == StreamStep::kGood) step = StreamStep::kEnd;
  }
  bytes_.resize(out.pos);
  if (out.pos == wanted) return true;
  // After kGood, the file could not be read.
  at_limit_ = step == StreamStep::kLimit || step == StreamStep::kGood;
  stream_.reset();
  return false;
}

}  // namespace opdock
