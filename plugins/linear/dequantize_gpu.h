// Prepares and launches the kernel that copies a weight of 8-bit integers as floats.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <opdock/elementwise_op.hpp>

#include "device/dequantize_params.cuh"

namespace dequantize {

// Fills in the parameters. q: int8; scale: float, one number for each group of equally many
// elements; out: float32, float16 or bfloat16, of q's size. All are contiguous, and none is empty.
inline Params make_params(opdock::Tensor q, opdock::Tensor scale, opdock::Tensor out) {
  const int64_t size = 16 / out.dtype().bytes();
  Params params = {};
  params.q = static_cast<const signed char*>(q.raw());
  params.scale = scale.data<const float>();
  params.out = out.raw();
  params.numel = q.numel();
  params.group = q.numel() / scale.numel();
  params.even = params.group % size == 0;
  params.aligned = reinterpret_cast<uintptr_t>(params.out) % 16 == 0 &&
                   reinterpret_cast<uintptr_t>(params.q) % static_cast<uint64_t>(size) == 0;
  if (params.group > 1) {
    opdock::Elements<1> elements = {};
    opdock::detail::set_divisor(&elements, static_cast<uint64_t>(params.group));
    params.factor = elements.factor;
    params.shift = elements.shift;
  }
  return params;
}

// Launches dequantize<T> on the call's stream; T is `dtype`, the dtype of the result.
inline void launch(const opdock::Call& call, uint32_t kernel, opdock::Dtype dtype,
                   const Params& params) {
  const int64_t of_block = kThreads * kVectors * (16 / dtype.bytes());
  const int64_t blocks = (params.numel + of_block - 1) / of_block;
  if (blocks > 0x7fffffff)
    throw opdock::Error(
        OPDOCK_UNSUPPORTED,
        opdock::detail::concat("argument 'q': found ", params.numel,
                               " elements, wanted at most 2^43; pass fewer at a time"));
  opdock::Launch how = {blocks, kThreads};
  how.flags = opdock::detail::pdl_launch_flags(call, blocks, kThreads);
  call.launch(kernel, how, params);
}

}  // namespace dequantize
