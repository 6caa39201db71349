// A kernel that uses every function of the device vocabulary once. It is compiled but not run.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/device.cuh"
using namespace opdock;
OPDOCK_KERNEL(128) words(float* f, int* i, uint32_t* u, uint64_t* l, const bfloat16* b) {
  OPDOCK_SHARED(float, shared, 1024);
  const int t = thread_index_z() + block_threads_z() +
                static_cast<int>(block_index_z() + grid_blocks_y() + grid_blocks_z());
  u[0] = static_cast<opdock::uint32_t>(vote_ballot(t > 3) + vote_any(t > 4) + vote_all(t > 5));
  f[1] = shuffle_up(f[0], 1) + shuffle_down(f[0], 2);
  i[1] = shuffle_up(i[0], 1) + shuffle_down(i[0], 2) + shuffle(i[3], 4) + shuffle_xor(i[4], 5);
  u[1] = shuffle_up(u[0], 1) + shuffle_down(u[0], 2) + shuffle(u[3], 4);
  atomic_add(f, 1.0f);
  atomic_add(i, 1);
  atomic_add(u, 1u);
  atomic_add(l, opdock::uint64_t(1));
  atomic_max(i, 3);
  atomic_min(i, 4);
  atomic_exchange(i, 1);
  atomic_exchange(u, 1u);
  atomic_exchange(l, opdock::uint64_t(1));
  atomic_compare_and_swap(i, 1, 2);
  atomic_compare_and_swap(u, 1u, 2u);
  atomic_compare_and_swap(l, opdock::uint64_t(1), opdock::uint64_t(2));
  device_fence();
  copy_async16(shared + 4 * thread_index(), f + 4 * thread_index());
  copy_async_commit();
  copy_async_wait<0>();
  launch_dependents();
  launch_wait();
  cluster_barrier();
  f[2] = *cluster_shared(shared, (cluster_rank() + 1) % cluster_blocks());
  cluster_barrier();
  store_unit<1>(i + 8, load_unit<1>(i + 9));
  store_unit<16>(f + 8, load_unit<16>(f + 12));
  u[2] = funnel_right(u[0], u[1], 8);
  // Must not be ambiguous with the compiler's own functions and types.
  f[4] = log(f[3]) + expm1(f[7]) + exp(f[8]) + exp2(f[9]) + sqrt(f[10]) + rsqrt(f[11]);
  f[5] = rcp(f[4]) + erf(f[5]) + tanh(f[6]) + max(f[1], f[2]) + min(f[3], f[4]) + abs(f[5]);
  f[6] = fma(f[1], f[2], f[3]) + float(b[0]) + float(opdock::half{uint16_t(u[5])});
  for (int64_t k = 12; k < int64_t(i[7]); ++k) f[k] = to_float(b[k]);
  l[1] = multiply_high(l[2], l[3]);
  if (f[3] > 1) trap();
}
