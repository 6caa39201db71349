// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "gemm/embedded.h"
#include "gemm/gpu.h"

namespace opdock::gemm {
namespace {

constexpr int64_t kTileSize = 64;
constexpr uint32_t kBlockThreads = 256;  // the kernels' kThreads
constexpr int64_t kMaxBlocks = INT32_MAX;

opdock_status launch_own(GpuCall* gpu, OwnKernel which, int64_t blocks, void* const* args,
                         uint32_t num_args, uint32_t flags = 0) {
  opdock_kernel* kernel = nullptr;
  const opdock_status found = gpu->kernel(which, &kernel);
  if (found != OPDOCK_OK) return found;
  opdock_launch launch{};
  launch.struct_size = sizeof launch;
  launch.grid[0] = static_cast<uint32_t>(std::clamp<int64_t>(blocks, 1, kMaxBlocks));
  launch.grid[1] = launch.grid[2] = 1;
  launch.block[0] = kBlockThreads;
  launch.block[1] = launch.block[2] = 1;
  launch.args = args;
  launch.num_args = num_args;
  launch.flags = flags;
  return gpu->call()->host->launch(gpu->call(), kernel, &launch);
}

bool is_aligned(const void* data, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(bytes) == 0;
}
// Returns whether groups of four elements can be loaded at once, if the rows' length is a multiple
// of four.
bool can_vectorize(const Operand& matrix) {
  return is_aligned(matrix.data, int64_t{4} * bytes_of(matrix.element)) &&
         matrix.row_stride % 4 == 0 && matrix.batch_stride % 4 == 0;
}

// Returns whether the rows of D and of everything added to it consist of 16-byte vectors of one
// 16-bit dtype, so that finish_vectors() can be used.
bool has_vectors(const Product& p, const Operand& sums) {
  const Finish& how = p.finish;
  const int element = p.d.element;
  if ((element != kFloat16 && element != kBfloat16) || sums.element != element) return false;
  if (how.alpha != 1.0f || p.a.scale != nullptr || p.b.scale != nullptr || p.d.scale != nullptr)
    return false;
  const auto fits = [element](const Operand& matrix) {
    return matrix.data == nullptr || (matrix.element == element && is_aligned(matrix.data, 16) &&
                                      matrix.row_stride % 8 == 0 && matrix.batch_stride % 8 == 0);
  };
  if (how.bias_element != kNoElement && (how.bias_element != element || !is_aligned(how.bias, 16)))
    return false;
  int64_t vectors = 0;
  const bool few =
      !__builtin_mul_overflow(p.m * (p.n / 8), p.batch, &vectors) && vectors < int64_t{1} << 31;
  return few && p.n % 8 == 0 && fits(sums) && fits(p.d) && fits(how.c);
}

}  // namespace

const OwnSource kOwnSources[2] = {{"gemm_shared.cuh", kSharedText}, {"gemm.cuh", kKernelText}};

opdock_status multiply_plainly(GpuCall* gpu, const Product& p) {
  const int64_t across = (p.n + kTileSize - 1) / kTileSize,
                down = (p.m + kTileSize - 1) / kTileSize;
  // The number of tiles in one matrix fits, because both sizes are at most 2^31 - 1 and tiles are
  // 64 wide; multiplied by the batch it may not fit.
  int64_t blocks = 0;
  if (__builtin_mul_overflow(across * down, p.batch, &blocks)) blocks = kMaxBlocks;
  Product product = p;
  void* d = const_cast<void*>(p.d.data);
  void* args[] = {&product, &d};
  return launch_own(gpu, is_integer(p) ? kMultiplyIntegers : kMultiplyFloats, blocks, args, 2);
}

opdock_status finish_sums(GpuCall* gpu, const Product& p, const Operand& sums) {
  const opdock_device_facts& facts = *gpu->call()->facts;
  Product product = p;
  Operand from = sums;
  void* d = const_cast<void*>(p.d.data);
  const auto early = [&](int64_t blocks) {
    const bool can = gpu->call()->device.type == OPDOCK_CUDA && facts.arch_major >= 9;
    return can && blocks <= kMaxEarlyBlocks ? OPDOCK_LAUNCH_PROGRAMMATIC : 0;
  };
  if (has_vectors(p, sums)) {
    void* args[] = {&product, &from, &d};
    const int64_t blocks = (p.m * (p.n / 8) * p.batch + kBlockThreads - 1) / kBlockThreads;
    return launch_own(gpu, p.d.element == kFloat16 ? kFinishHalves : kFinishBfloats, blocks, args,
                      3, early(blocks));
  }
  int vectors = p.n % 4 == 0 && can_vectorize(sums) && can_vectorize(p.d) &&
                can_vectorize(p.finish.c) &&
                (p.finish.bias_element == kNoElement ||
                 is_aligned(p.finish.bias, 4 * bytes_of(p.finish.bias_element)));
  void* args[] = {&product, &from, &d, &vectors};
  // One warp for each part of each row of one matrix; a loop in the kernel covers the other
  // matrices.
  const int64_t part = int64_t{facts.warp_size} * kFinishColumns,
                warps = kBlockThreads / facts.warp_size;
  const int64_t count = (p.n + part - 1) / part * p.m;
  const int64_t blocks = std::min<int64_t>((count + warps - 1) / warps, 1 << 20);
  return launch_own(gpu, kFinishSums, blocks, args, 4, early(blocks));
}

}  // namespace opdock::gemm
