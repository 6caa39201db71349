// Checks of a batch's description, alignment, and launches of a block per row, which the ops of
// this plugin share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <opdock/op.hpp>

#include "device/ragged_params.cuh"

namespace ragged {

using namespace opdock::usual;
using opdock::TypeTag;

// Elements that are worth waking a CPU thread for.
constexpr int64_t kGrain = 16384;
constexpr int64_t kMaxHead = 2 * kMaxPairs;  // elements of a head

inline void check_batch(Tensor batch, Tensor sequences) {
  check(batch, "batch").dtype(dtype_of<int32_t>()).shape({2});
  check(sequences, "sequences").dtype(dtype_of<int32_t>()).ndim(2).size(1, 4);
}
inline void check_tokens(Tensor token_sequences, int64_t tokens) {
  check(token_sequences, "token_sequences").dtype(dtype_of<int32_t>()).shape({tokens});
}

inline Batch batch_of(Tensor batch, Tensor sequences, const Tensor* token_sequences = nullptr) {
  Batch of = {};
  of.counts = batch.data<int32_t>();
  of.sequences = sequences.data<int32_t>();
  of.of_token = token_sequences ? token_sequences->data<int32_t>() : nullptr;
  of.rows = sequences.size(0);
  return of;
}

// Returns the stride from one row to the next, of which there may be one.
inline int64_t row_stride(Tensor x) {
  return x.size(0) <= 1 ? 0 : x.stride(0);
}

// Collects addresses and strides that kernels access by 16 bytes.
class Vectors {
 public:
  explicit Vectors(Tensor x) : bytes_(x.dtype().bytes()) {}
  Vectors& address(const void* data) {
    low_ |= reinterpret_cast<uintptr_t>(data);
    return *this;
  }
  Vectors& elements(int64_t count) {
    low_ |= static_cast<uint64_t>(count * bytes_);
    return *this;
  }
  Vectors& row(Tensor x) { return address(x.raw()).elements(row_stride(x)); }
  bool fit() const { return low_ % 16 == 0; }

 private:
  int64_t bytes_;
  uint64_t low_ = 0;
};

// Launches a grid of one dimension, on the call's stream. what: of what there are too many if the
// grid cannot have them.
template <class Params>
void launch_blocks(const Call& call, uint32_t kernel, int64_t blocks, int64_t threads,
                   const Params& params, const char* what) {
  if (blocks > 0x7fffffff)
    throw Error(OPDOCK_UNSUPPORTED, concat("found ", blocks, " blocks of threads for the ", what,
                                           ", wanted less than 2^31; pass fewer at a time"));
  opdock::Launch how = {blocks, threads};
  how.flags = opdock::detail::pdl_launch_flags(call, blocks, threads);
  call.launch(kernel, how, params);
}

// Calls f(TypeTag<T>{}) for the element type of x: float, half or bfloat16.
template <class F>
void for_type(Tensor x, const char* name, F&& f) {
  opdock::dispatch<float, opdock::half, opdock::bfloat16>(x, name, static_cast<F&&>(f));
}
inline void check_element(Tensor x, const char* name) {
  check(x, name).dtype(dtype_of<float>(), dtype_of<opdock::half>(), dtype_of<opdock::bfloat16>());
}

}  // namespace ragged
