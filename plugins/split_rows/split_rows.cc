// Implements split_rows and its gradient: checks their arguments, and copies between a tensor and
// the pieces that its rows are divided into.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <opdock/kernel_names.hpp>
#include <opdock/plugin.hpp>

#include "device/split_rows_params.cuh"

namespace split_rows {
namespace {

using opdock::Call;
using opdock::check;
using opdock::Error;
using opdock::List;
using opdock::Plan;
using opdock::Results;
using opdock::Tensor;
using opdock::detail::concat;

constexpr auto kCopyPieces =
    OPDOCK_KERNEL_FAMILY("split_rows::copy_pieces", opdock::KernelNumbers<1, 2, 4, 8, 16>);

// Waking a CPU thread pays off for about ten microseconds of work.
constexpr int64_t kGrainBytes = 128 << 10;

// Adds up the sizes of the pieces, which must total the number of rows of x.
class RowCount {
 public:
  explicit RowCount(const char* name) : name_(name) {}

  void add(size_t number, int64_t size) {
    if (size < 0) {
      throw Error(OPDOCK_INVALID_ARGUMENT,
                  concat("argument '", name_, "': found ", size, " as element ", number,
                         ", wanted sizes that are not negative; pass numbers of rows"));
    }
    if (__builtin_add_overflow(sum_, size, &sum_)) {
      throw Error(OPDOCK_INVALID_ARGUMENT,
                  concat("argument '", name_,
                         "': found sizes that add up to more than 2^63 - 1 by "
                         "element ",
                         number, ", wanted the number of rows of 'x'"));
    }
  }
  void expect(int64_t rows) const {
    if (sum_ == rows) return;
    throw Error(OPDOCK_INVALID_ARGUMENT,
                concat("argument '", name_, "': found ", sum_, " rows in all, wanted ", rows,
                       ", the size of 'x' in dimension 0; pass sizes that add up to it"));
  }

 private:
  const char* name_;
  int64_t sum_ = 0;
};

void plan_split(Plan& plan, Tensor x, List<int64_t> sizes) {
  check(x, "x").ndim_at_least(1).contiguous();
  RowCount rows("sizes");
  for (size_t i = 0; i < sizes.size(); ++i) rows.add(i, sizes[i]);
  rows.expect(x.size(0));
  for (size_t i = 0; i < sizes.size(); ++i) plan.output(x.like().with_size(0, sizes[i]));
}

void plan_join(Plan& plan, List<Tensor> grads, Tensor x) {
  check(x, "x").ndim_at_least(1);
  RowCount rows("grads");
  for (size_t i = 0; i < grads.size(); ++i) {
    const std::string text = concat("grads[", i, "]");
    const auto piece = check(grads[i], text.c_str());
    piece.same_dtype_as(x, "x").same_device_as(x, "x").ndim(x.ndim()).contiguous();
    for (int32_t k = 1; k < x.ndim(); ++k) piece.size(k, x.size(k));
    rows.add(i, grads[i].size(0));
  }
  rows.expect(x.size(0));
  plan.output(x.like());
}

int64_t bytes_of(Tensor tensor) {
  return tensor.numel() * tensor.dtype().bytes();
}

void copy_on_cpu(Call& call, char* whole, int64_t bytes, List<Tensor> pieces, bool joins) {
  call.parallel_for(bytes, kGrainBytes, [&](int64_t begin, int64_t end) {
    int64_t at = 0;  // where the next piece begins
    for (size_t i = 0; at < end; ++i) {
      const int64_t size = bytes_of(pieces[i]);
      const int64_t from = std::max(begin, at), to = std::min(end, at + size);
      if (from < to) {
        char* const piece = static_cast<char*>(pieces[i].raw()) + (from - at);
        const size_t count = static_cast<size_t>(to - from);
        joins ? std::memcpy(whole + from, piece, count) : std::memcpy(piece, whole + from, count);
      }
      at += size;
    }
  });
}

// Collects pieces and launches kernels, each for as many pieces as its parameters hold.
class Launches {
 public:
  Launches(Call& call, char* whole, bool joins) : call_(call) {
    pieces_.whole = whole;
    pieces_.joins = joins;
  }

  void add(void* piece, int64_t bytes) {
    pieces_.piece[pieces_.count] = piece;
    bytes_ += bytes;
    pieces_.end[pieces_.count] = bytes_;
    addresses_ |= reinterpret_cast<uintptr_t>(piece) | static_cast<uintptr_t>(bytes);
    if (++pieces_.count == kMaxPieces) flush();
  }

  void flush() {
    if (pieces_.count == 0) return;
    // The largest power of two, up to 16 bytes, to which all addresses and sizes are aligned.
    const uintptr_t all = addresses_ | reinterpret_cast<uintptr_t>(pieces_.whole) | 16;
    const int64_t unit = static_cast<int64_t>(all & ~(all - 1));
    for (int i = 0; i < pieces_.count; ++i) pieces_.end[i] /= unit;
    constexpr int64_t kStretch = kThreads * kUnitsPerThread;
    const int64_t blocks = (bytes_ / unit + kStretch - 1) / kStretch;
    call_.launch(kCopyPieces(unit), {std::min<int64_t>(blocks, 0x7fffffff), kThreads}, pieces_);
    pieces_.whole = static_cast<char*>(pieces_.whole) + bytes_;
    pieces_.count = 0;
    addresses_ = 0;
    bytes_ = 0;
  }

 private:
  Call& call_;
  Pieces pieces_ = {};
  uintptr_t addresses_ = 0;  // bitwise OR of the addresses and sizes of the pieces
  int64_t bytes_ = 0;
};

void copy(Call& call, Tensor whole, List<Tensor> pieces, bool joins) {
  const int64_t bytes = bytes_of(whole);
  if (bytes == 0) return;
  char* const memory = static_cast<char*>(whole.raw());
  if (call.is_cpu()) return copy_on_cpu(call, memory, bytes, pieces, joins);
  Launches launches(call, memory, joins);
  for (size_t i = 0; i < pieces.size(); ++i)
    if (!pieces[i].is_empty()) launches.add(pieces[i].raw(), bytes_of(pieces[i]));
  launches.flush();
}

void run_split(Call& call, Results results, Tensor x, List<int64_t>) {
  const List<Tensor> pieces = results.list(0);
  for (size_t i = 0; i < pieces.size(); ++i)
    check(pieces[i], concat("output ", i).c_str()).contiguous();
  copy(call, x, pieces, false);
}

void run_join(Call& call, Results results, List<Tensor> grads, Tensor) {
  check(results[0], "output 0").contiguous();
  copy(call, results[0], grads, true);
}

}  // namespace
}  // namespace split_rows

OPDOCK_OP(split_rows, split_rows::plan_split, nullptr, split_rows::run_split)
OPDOCK_OP(split_rows_backward, split_rows::plan_join, nullptr, split_rows::run_join)
