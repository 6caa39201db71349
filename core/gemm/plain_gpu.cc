// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "gemm/embedded.h"
#include "gemm/gpu.h"

namespace opdock::gemm {
namespace {

constexpr int64_t kTileSize = 64;
constexpr uint32_t kBlockThreads = 256;  // as the kernels have it
constexpr int64_t kMostBlocks = INT32_MAX;

opdock_status launch_own(GpuCall* gpu, OwnKernel which, int64_t blocks, void* const* args,
                         uint32_t num_args) {
  opdock_kernel* kernel = nullptr;
  const opdock_status found = gpu->kernel(which, &kernel);
  if (found != OPDOCK_OK) return found;
  opdock_launch launch{};
  launch.struct_size = sizeof launch;
  launch.grid[0] = static_cast<uint32_t>(std::clamp<int64_t>(blocks, 1, kMostBlocks));
  launch.grid[1] = launch.grid[2] = 1;
  launch.block[0] = kBlockThreads;
  launch.block[1] = launch.block[2] = 1;
  launch.args = args;
  launch.num_args = num_args;
  return gpu->call()->host->launch(gpu->call(), kernel, &launch);
}

}  // namespace

const OwnSource kOwnSources[2] = {{"gemm_shared.cuh", kSharedText}, {"gemm.cuh", kKernelText}};

opdock_status multiply_plainly(GpuCall* gpu, const Product& p) {
  const int64_t across = (p.n + kTileSize - 1) / kTileSize,
                down = (p.m + kTileSize - 1) / kTileSize;
  // Two sizes of at most 2^31 - 1 by tiles of 64 fit; with the batch they may not.
  int64_t blocks = 0;
  if (__builtin_mul_overflow(across * down, p.batch, &blocks)) blocks = kMostBlocks;
  Product product = p;
  void* d = const_cast<void*>(p.d.data);
  void* args[] = {&product, &d};
  return launch_own(gpu, is_integer(p) ? kMultiplyIntegers : kMultiplyFloats, blocks, args, 2);
}

opdock_status finish_sums(GpuCall* gpu, const Product& p, const Operand& sums) {
  Product product = p;
  Operand from = sums;
  void* d = const_cast<void*>(p.d.data);
  void* args[] = {&product, &from, &d};
  // Four columns a thread of each row of one matrix; the kernel goes on from there.
  const int64_t columns = gpu->call()->facts->warp_size * 4;
  const int64_t warps = kBlockThreads / gpu->call()->facts->warp_size;
  const int64_t count = (p.n + columns - 1) / columns * p.m;
  return launch_own(gpu, kFinishSums, std::min<int64_t>((count + warps - 1) / warps, 1 << 20), args,
                    3);
}

}  // namespace opdock::gemm
