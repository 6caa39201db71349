// Launches the kernels over groups.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "groups.h"

namespace fp_quantizer {
namespace {

using namespace opdock::usual;
using Types = KernelTypes<opdock::half, opdock::bfloat16>;
using Bits = KernelNumbers<4, 6, 8, 12>;
constexpr auto kQuantize = OPDOCK_KERNEL_FAMILY("fp_quantizer::quantize", Types, Bits);
constexpr auto kDequantize = OPDOCK_KERNEL_FAMILY("fp_quantizer::dequantize", Types, Bits);

uintptr_t address(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer);
}

// Returns the binary logarithm of the threads of a group: as few as hold it, up to a block.
int lane_bits_of(int64_t group) {
  int bits = 0;
  while ((1 << bits) < kThreads && (int64_t{kHeld * kElements} << bits) < group) ++bits;
  return bits;
}

template <class Params>
void launch(const Call& call, uint32_t kernel, const Params& params) {
  const int64_t teams = kThreads >> params.lane_bits;
  // AMD's driver takes fewer than 2^32 threads; the blocks go on where there are more groups.
  constexpr int64_t kMaxBlocks = (int64_t{1} << 32) / kThreads - 1;
  const int64_t blocks = std::min<int64_t>((params.groups + teams - 1) / teams, kMaxBlocks);
  opdock::Launch how = {blocks, kThreads};
  how.flags = opdock::detail::pdl_launch_flags(call, blocks, kThreads);
  call.launch(kernel, how, params);
}

}  // namespace

void launch_quantize(const Call& call, Dtype dtype, int bits, QuantizeParams params) {
  const bool is_whole = params.group % kElements == 0;
  const uintptr_t unit = static_cast<uintptr_t>(code_unit(bits));
  params.lane_bits = lane_bits_of(params.group);
  params.is_aligned = is_whole && address(params.x) % 16 == 0;
  params.has_units = is_whole && address(params.q) % unit == 0;
  launch(call, kQuantize(dtype, bits), params);
}

void launch_dequantize(const Call& call, Dtype dtype, int bits, DequantizeParams params) {
  const bool is_whole = params.group % kElements == 0;
  const auto has = [](const void* at, int64_t stride, int64_t unit) {
    return address(at) % static_cast<uintptr_t>(unit) == 0 && stride % unit == 0;
  };
  params.lane_bits = lane_bits_of(params.group);
  params.is_aligned = is_whole && address(params.out) % 16 == 0;
  params.has_units = is_whole && has(params.codes_at, params.code_stride, code_unit(bits));
  params.has_floats = has(params.scales_at, params.scale_stride, kScaleBytes);
  launch(call, kDequantize(dtype, bits), params);
}

}  // namespace fp_quantizer
