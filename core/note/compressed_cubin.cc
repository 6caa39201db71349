// SPDX-License-Identifier: Apache-2.0
#include "note/compressed_cubin.h"

#include <elf.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

namespace opdock {
namespace {

constexpr size_t kStepBytes = 64 << 10;  // decompressed per step
constexpr size_t kHistory = 64 << 10;    // the greatest distance of an LZ4 back reference
constexpr size_t kInputBytes = 16384;
// LZ4 cannot exceed this ratio; real cubins compressed by zstd reach 20.
constexpr uint64_t kCubinRatio = 256;
constexpr int kMaxWindowLog = 27;

// Reads the compressed bytes in pieces.
class CubinInput {
 public:
  CubinInput(FileReader* reader, uint64_t offset, uint64_t size)
      : reader_(reader), next_(offset), left_(size) {}

  // Makes at least one byte available. Returns false at the end, or if reading failed.
  bool fill() {
    if (at_ < piece_.size()) return true;
    piece_.resize(static_cast<size_t>(std::min<uint64_t>(kInputBytes, left_)));
    at_ = 0;
    if (piece_.empty() || !reader_->read_exactly(next_, piece_.data(), piece_.size())) {
      piece_.clear();
      left_ = 0;
      return false;
    }
    next_ += piece_.size();
    left_ -= piece_.size();
    return true;
  }
  bool take(uint8_t* byte) {
    if (!fill()) return false;
    *byte = piece_[at_++];
    return true;
  }
  const uint8_t* data() const { return piece_.data() + at_; }
  size_t size() const { return piece_.size() - at_; }
  void skip(size_t count) { at_ += count; }

 private:
  FileReader* reader_;
  uint64_t next_, left_;
  std::vector<uint8_t> piece_;
  size_t at_ = 0;
};

class Decompressor {
 public:
  virtual ~Decompressor() = default;
  // Appends up to kStepBytes bytes to *out. The caller keeps at least the last kHistory bytes of
  // earlier output in *out, or all if there were fewer. Returns false if no more bytes come,
  // because the input ends or is damaged.
  virtual bool step(std::vector<uint8_t>* out) = 0;
};

class Zstd : public Decompressor {
 public:
  explicit Zstd(CubinInput input) : input_(std::move(input)), stream_(ZSTD_createDStream()) {
    if (stream_ == nullptr) return;
    ZSTD_DCtx_setParameter(stream_.get(), ZSTD_d_windowLogMax, kMaxWindowLog);
  }
  bool step(std::vector<uint8_t>* out) override {
    const size_t had = out->size();
    while (!is_over_ && stream_ != nullptr && out->size() == had) {
      const bool is_last = !input_.fill();  // the stream may still hold output
      ZSTD_inBuffer in{input_.data(), input_.size(), 0};
      out->resize(had + kStepBytes);
      ZSTD_outBuffer to{out->data() + had, kStepBytes, 0};
      const size_t result = ZSTD_decompressStream(stream_.get(), &to, &in);
      input_.skip(in.pos);
      is_over_ = ZSTD_isError(result) != 0 || result == 0 || (is_last && to.pos == 0);
      out->resize(had + (ZSTD_isError(result) != 0 ? 0 : to.pos));
    }
    return out->size() > had;
  }

 private:
  struct Free {
    void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
  };
  CubinInput input_;
  std::unique_ptr<ZSTD_DStream, Free> stream_;
  bool is_over_ = false;
};

// The LZ4 block format: a series of sequences, each of literal bytes and a back reference to
// earlier output. Source: "LZ4 Block Format Description".
class Lz4 : public Decompressor {
 public:
  explicit Lz4(CubinInput input) : input_(std::move(input)) {}
  bool step(std::vector<uint8_t>* out) override {
    const size_t had = out->size(), end = had + kStepBytes;
    while (!is_over_ && out->size() < end) {
      if (literals_ != 0) {
        copy_literals(end - out->size(), out);
      } else if (match_ != 0) {
        copy_match(end - out->size(), out);
      } else {
        is_over_ = !(is_token_next_ ? read_token() : read_match(*out));
      }
    }
    return out->size() > had;
  }

 private:
  // Reads a length: four bits, followed by more bytes if all four are ones.
  bool read_length(unsigned bits, uint64_t* length) {
    *length = bits;
    uint8_t more = bits == 15 ? 255 : 0;
    while (more == 255) {
      if (!input_.take(&more)) return false;
      *length += more;
    }
    return true;
  }
  bool read_token() {
    is_token_next_ = false;
    return input_.take(&token_) && read_length(token_ >> 4, &literals_);
  }
  bool read_match(const std::vector<uint8_t>& out) {
    is_token_next_ = true;
    uint8_t low = 0, high = 0;
    // The last sequence has no back reference.
    if (!input_.take(&low) || !input_.take(&high)) return false;
    distance_ = static_cast<size_t>(low | high << 8);
    constexpr uint64_t kMinMatch = 4;
    if (distance_ == 0 || distance_ > out.size() || !read_length(token_ & 15, &match_)) {
      return false;
    }
    match_ += kMinMatch;
    return true;
  }
  void copy_literals(size_t room, std::vector<uint8_t>* out) {
    is_over_ = !input_.fill();
    const size_t count = static_cast<size_t>(std::min<uint64_t>({literals_, room, input_.size()}));
    out->insert(out->end(), input_.data(), input_.data() + count);
    input_.skip(count);
    literals_ -= count;
  }
  // Copies byte by byte, because a match may overlap the bytes that it writes.
  void copy_match(size_t room, std::vector<uint8_t>* out) {
    const size_t count = static_cast<size_t>(std::min<uint64_t>(match_, room));
    const size_t at = out->size();
    out->resize(at + count);
    for (size_t i = 0; i < count; ++i) (*out)[at + i] = (*out)[at + i - distance_];
    match_ -= count;
  }

  CubinInput input_;
  uint8_t token_ = 0;
  uint64_t literals_ = 0, match_ = 0;  // how many bytes are still to be copied
  size_t distance_ = 0;
  bool is_token_next_ = true, is_over_ = false;
};

// Searches the decompressed stream for the note that names the toolkit.
class NoteSearch {
 public:
  // Returns true if the note was found. `bytes`: all bytes since the last forget().
  bool look(const std::vector<uint8_t>& bytes, bool is_end, ImageIdentity* identity) {
    constexpr size_t kHead = sizeof(Elf64_Nhdr), kOwner = sizeof kToolkitNoteOwner;
    while (bytes.size() >= next_ + kHead + kOwner) {
      const void* found = memmem(bytes.data() + next_ + kHead, bytes.size() - next_ - kHead,
                                 kToolkitNoteOwner, kOwner);
      if (found == nullptr) {
        next_ = bytes.size() - kHead - kOwner + 1;
        break;
      }
      next_ = static_cast<size_t>(static_cast<const uint8_t*>(found) - bytes.data()) - kHead;
      Elf64_Nhdr head;
      std::memcpy(&head, bytes.data() + next_, sizeof head);
      const size_t whole = kHead + kOwner + size_t{head.n_descsz};
      if (head.n_namesz == kOwner && head.n_type == kToolkitNoteType && whole <= kMaxToolkitNote) {
        if (bytes.size() - next_ < whole && !is_end) return false;
        const size_t size = std::min(whole, bytes.size() - next_);
        read_toolkit_note({bytes.begin() + static_cast<ptrdiff_t>(next_),
                           bytes.begin() + static_cast<ptrdiff_t>(next_ + size)},
                          identity);
        if (!identity->toolkit.empty()) return true;
      }
      ++next_;
    }
    return false;
  }
  size_t next() const { return next_; }
  // Tells that the first `count` bytes were dropped.
  void forget(size_t count) { next_ -= count; }

 private:
  size_t next_ = 0;  // where the next note to be examined may begin
};

}  // namespace

std::optional<ImageIdentity> identify_compressed_cubin(FileReader* reader,
                                                       CubinCompression compression,
                                                       uint64_t offset, uint64_t size,
                                                       uint64_t* budget) {
  CubinInput input(reader, offset, size);
  const std::unique_ptr<Decompressor> stream =
      compression == CubinCompression::kLz4
          ? std::unique_ptr<Decompressor>(std::make_unique<Lz4>(std::move(input)))
          : std::make_unique<Zstd>(std::move(input));
  std::optional<ImageIdentity> identity;
  NoteSearch search;
  std::vector<uint8_t> bytes;
  uint64_t left =
      std::min(*budget, size > UINT64_MAX / kCubinRatio ? UINT64_MAX : size * kCubinRatio);
  for (bool is_more = true; is_more && left != 0;) {
    const size_t had = bytes.size();
    is_more = stream->step(&bytes);
    const uint64_t made = bytes.size() - had;
    *budget -= std::min(*budget, made);
    left -= std::min(left, made);
    if (!identity) {
      Elf64_Ehdr header;
      if (bytes.size() < sizeof header) continue;
      std::memcpy(&header, bytes.data(), sizeof header);
      std::string problem;
      identity = identify_cubin_header(header, &problem);
      if (!identity || identity->arch.empty() || !identity->toolkit.empty()) return identity;
    }
    if (search.look(bytes, !is_more, &*identity)) return identity;
    if (const size_t kept = std::max(kHistory, bytes.size() - search.next());
        bytes.size() > kept + 2 * kHistory) {
      const size_t dropped = bytes.size() - kept;
      bytes.erase(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(dropped));
      search.forget(dropped);
    }
  }
  return identity;
}

}  // namespace opdock
