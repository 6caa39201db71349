// Votes and shuffles between the lanes of a warp, in addition to the shuffles of target.cuh. All
// lanes of the warp take part in each of these.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/target.cuh"

namespace opdock {

// Returns a word whose bit i is whether lane i says yes. It has as many bits as the warp has lanes.
OPDOCK_DEVICE uint64_t vote_ballot(bool yes) {
#if defined(OPDOCK_SOFT)
  return softgpu_warp(softgpu::WarpOp::kBallot, yes, 0);
#elif OPDOCK_HIP
#if defined(__has_builtin) && __has_builtin(__builtin_amdgcn_ballot_w64)
#if __AMDGCN_WAVEFRONT_SIZE == 64
  return __builtin_amdgcn_ballot_w64(yes);
#else
  return __builtin_amdgcn_ballot_w32(yes);
#endif
#else
  return __builtin_amdgcn_uicmp(static_cast<uint32_t>(yes), 0u, 33);  // 33: not equal
#endif
#else
  return __ballot_sync(0xffffffffu, yes);
#endif
}
// Returns whether any lane says yes.
OPDOCK_DEVICE bool vote_any(bool yes) {
#if defined(OPDOCK_SOFT)
  return softgpu_warp(softgpu::WarpOp::kAny, yes, 0) != 0;
#elif OPDOCK_HIP
  return vote_ballot(yes) != 0;
#else
  return __any_sync(0xffffffffu, yes) != 0;
#endif
}
// Returns whether all lanes say yes.
OPDOCK_DEVICE bool vote_all(bool yes) {
#if defined(OPDOCK_SOFT)
  return softgpu_warp(softgpu::WarpOp::kAll, yes, 0) != 0;
#elif OPDOCK_HIP
  return vote_ballot(!yes) == 0;
#else
  return __all_sync(0xffffffffu, yes) != 0;
#endif
}

OPDOCK_DEVICE int32_t shuffle_xor(int32_t value, int mask) {
  return static_cast<int32_t>(shuffle_xor(static_cast<uint32_t>(value), mask));
}
// Returns the value of lane `lane`.
OPDOCK_DEVICE uint32_t shuffle(uint32_t value, int lane) {
#if defined(OPDOCK_SOFT)
  return static_cast<uint32_t>(softgpu_warp(softgpu::WarpOp::kShuffle, value, lane));
#elif OPDOCK_HIP
  return shuffle_bits(value, lane);
#else
  return __shfl_sync(0xffffffffu, value, lane);
#endif
}
OPDOCK_DEVICE int32_t shuffle(int32_t value, int lane) {
  return static_cast<int32_t>(shuffle(static_cast<uint32_t>(value), lane));
}
// Returns the value of the lane `by` lanes lower, or the caller's own value if there is none.
OPDOCK_DEVICE uint32_t shuffle_up(uint32_t value, int by) {
#if defined(OPDOCK_SOFT)
  return static_cast<uint32_t>(softgpu_warp(softgpu::WarpOp::kShuffleUp, value, by));
#elif OPDOCK_HIP
  const int lane = lane_number();
  return shuffle_bits(value, lane >= by ? lane - by : lane);
#else
  return __shfl_up_sync(0xffffffffu, value, static_cast<uint32_t>(by));
#endif
}
// Returns the value of the lane `by` lanes higher, or the caller's own value if there is none.
OPDOCK_DEVICE uint32_t shuffle_down(uint32_t value, int by) {
#if defined(OPDOCK_SOFT)
  return static_cast<uint32_t>(softgpu_warp(softgpu::WarpOp::kShuffleDown, value, by));
#elif OPDOCK_HIP
  const int lane = lane_number();
  return shuffle_bits(value, lane + by < warp_width() ? lane + by : lane);
#else
  return __shfl_down_sync(0xffffffffu, value, static_cast<uint32_t>(by));
#endif
}
OPDOCK_DEVICE int32_t shuffle_up(int32_t value, int by) {
  return static_cast<int32_t>(shuffle_up(static_cast<uint32_t>(value), by));
}
OPDOCK_DEVICE int32_t shuffle_down(int32_t value, int by) {
  return static_cast<int32_t>(shuffle_down(static_cast<uint32_t>(value), by));
}
OPDOCK_DEVICE float shuffle_up(float value, int by) {
  return bits_float(shuffle_up(float_bits(value), by));
}
OPDOCK_DEVICE float shuffle_down(float value, int by) {
  return bits_float(shuffle_down(float_bits(value), by));
}

}  // namespace opdock
