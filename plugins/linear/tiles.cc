// Products by the plugin's own kernels: chooses a kernel and fills in its parameters.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <opdock/elementwise_op.hpp>

#include "elements.h"
#include "product.h"
#include "tiles_cpu.h"

namespace linear {
namespace {

using opdock::Error;
using opdock::KernelNumbers;
using opdock::RowTypes;
using opdock::detail::concat;

constexpr auto kRows = OPDOCK_KERNEL_FAMILY("linear::int8_rows", RowTypes, KernelNumbers<1, 4, 8>);
constexpr auto kTiles = OPDOCK_KERNEL_FAMILY("linear::int8_tiles", RowTypes);
using Halves = opdock::KernelTypes<opdock::half, opdock::bfloat16>;
constexpr auto kFew = OPDOCK_KERNEL_FAMILY("linear::int8_few", Halves, KernelNumbers<8, 32>);
constexpr auto kOne = OPDOCK_KERNEL_FAMILY("linear::one_row", RowTypes, KernelNumbers<1, 2>);
// A weight with more elements is read at most twice. A smaller one is read more often, in
// proportion, because that is faster than making a copy.
constexpr int64_t kSmallWeight = int64_t{5} << 20;
// For one row: from kManyOutputs outputs on, a warp has two outputs; a lane has up to kLaneVectors
// vectors of each.
constexpr int64_t kManyOutputs = 4096, kLaneVectors = 4;
constexpr int64_t kMaxBlocks = 65535;  // upper bound of a grid's second dimension

int64_t group_of(const Weight& weight) {
  if (!weight.scale) return int64_t{1} << 61;
  const int64_t groups = std::max<int64_t>(1, weight.scale->numel());
  return std::max<int64_t>(1, weight.tensor.numel() / groups);
}

TileParams make_params(const Product& of, Tensor out) {
  const Weight& weight = of.weight;
  TileParams p = {};
  p.out = out.raw();
  p.x = of.x.raw();
  p.residual = of.residual ? of.residual->raw() : nullptr;
  p.bias = of.bias ? of.bias->raw() : nullptr;
  p.weight = weight.tensor.raw();
  p.scale = weight.scale ? weight.scale->data<const float>() : nullptr;
  p.act = kernel_activation(of.activation);
  p.inputs = weight.inputs();
  p.outputs = weight.outputs();
  const int64_t stride = weight.tensor.size(0) > 1 ? weight.tensor.stride(0) : 1;
  const int64_t columns = weight.tensor.size(1);
  p.input_stride = weight.transposed ? 1 : stride;
  p.output_stride = weight.transposed ? stride : 1;
  p.input_index = weight.transposed ? 1 : columns;
  p.output_index = weight.transposed ? columns : 1;
  p.rows = opdock::make_rows<kTilePlaces>({out, of.x, of.residual});
  return p;
}

// Sets what the GPU's kernels need to know about the groups.
void set_groups(const Product& of, TileParams* p) {
  const int64_t group = group_of(of.weight);
  p->shift = -1;
  if (group > 1) {
    opdock::Elements<1> elements = {};
    opdock::detail::set_divisor(&elements, static_cast<uint64_t>(group));
    p->factor = elements.factor;
    p->shift = elements.shift;
  }
  uint64_t address = reinterpret_cast<uintptr_t>(p->weight);
  if (of.weight.tensor.size(0) > 1) address |= static_cast<uint64_t>(of.weight.tensor.stride(0));
  const uint64_t bytes = static_cast<uint64_t>(of.x.dtype().bytes());
  p->vectors = of.weight.transposed && group % 16 == 0 && p->inputs % 16 == 0 &&
               address % 16 == 0 && opdock::rows_aligned(p->rows, kInputRows, p->x, bytes, 16);
}

void run_on_cpu(const Call& call, Dtype dtype, int64_t group, const TileParams& params) {
  const TileJob job = {dtype, group, params};
  static const auto kernel = OPDOCK_SIMD_CHOOSE(product_tiles);
  // Waking a thread pays off for about ten microseconds of work.
  const int64_t grain = (int64_t{1} << 18) / (kCpuRows * kCpuColumns * (params.inputs + 1));
  call.parallel_for(job.tiles(), std::max<int64_t>(1, grain),
                    [&](int64_t begin, int64_t end) { kernel(job, begin, end); });
}

int64_t divide_up(int64_t number, int64_t by) {
  return (number + by - 1) / by;
}

// Computes one row, with a weight without scales. The numbers were chosen on an H100, with a cold
// L2 and in the graph of a token: more warps per output, and more outputs per warp, take longer.
void run_one_row(const Call& call, Dtype dtype, TileParams p) {
  const int64_t size = 16 / dtype.bytes(), warp = call.facts().warp_size;
  const uint64_t bytes = static_cast<uint64_t>(dtype.bytes());
  uint64_t at = reinterpret_cast<uintptr_t>(p.weight) | reinterpret_cast<uintptr_t>(p.x);
  at |= static_cast<uint64_t>(p.output_stride) * bytes;
  p.vectors = p.inputs % size == 0 && at % 16 == 0;
  const int each = p.outputs < kManyOutputs ? 1 : 2;
  p.team = 1;
  while (p.team * warp < kTileThreads && p.team * warp * size * kLaneVectors < p.inputs)
    p.team *= 2;
  const int64_t blocks = divide_up(p.outputs, kTileThreads / warp / p.team * each);
  opdock::Launch how = {opdock::Dim3(blocks), kTileThreads};
  how.flags = opdock::detail::pdl_launch_flags(call, blocks, kTileThreads);
  call.launch(kOne(dtype, each), how, p);
}

// Returns whether tensor cores can multiply the weight as it is: 64 inputs of an output share a
// scale.
bool takes_matrices(const Call& call, const Product& of, TileParams* p) {
  const int64_t group = group_of(of.weight), rows = p->rows.count;
  if (!call.is_cuda() || call.facts().arch_major < 8 || of.x.dtype().bytes() != 2 || !p->vectors ||
      rows < 2)
    return false;
  // Every 32 rows read the weight again, which costs less than copying a small weight.
  const int64_t times = 2 + kSmallWeight / (p->inputs * p->outputs);
  if (divide_up(rows, kMaxRows) > std::min<int64_t>(times, kMaxBlocks)) return false;
  p->by_parts = group % p->inputs != 0;
  if (p->by_parts && (group % 64 != 0 || p->inputs % 64 != 0)) return false;
  p->out_vectors =
      p->outputs % 8 == 0 && reinterpret_cast<uintptr_t>(p->bias) % 16 == 0 &&
      opdock::rows_aligned(p->rows, kOutRows, p->out, 2, 16) &&
      (p->residual == nullptr || opdock::rows_aligned(p->rows, kResidualRows, p->residual, 2, 16));
  return true;
}

void run_on_matrices(const Call& call, Dtype dtype, const TileParams& p) {
  const int each = p.rows.count <= 8 ? 8 : 32;
  const int64_t across = divide_up(p.outputs, 16), down = divide_up(p.rows.count, each);
  opdock::Launch how = {opdock::Dim3(across, down), kTileThreads};
  how.flags = opdock::detail::pdl_launch_flags(call, across * down, kTileThreads);
  call.launch(kFew(dtype, each), how, p);
}

void run_on_gpu(const Call& call, Dtype dtype, const TileParams& params) {
  const int64_t rows = params.rows.count;
  uint32_t kernel = kTiles(dtype);
  opdock::Dim3 grid(1);
  int64_t blocks = 0;
  if (params.input_stride == 1 && rows <= kMaxRows) {
    const int64_t outputs = kTileThreads / call.facts().warp_size;  // outputs per block
    const int64_t each = rows == 1 ? 1 : rows <= 4 ? 4 : 8, down = (rows + each - 1) / each;
    blocks = (params.outputs + outputs - 1) / outputs;
    if (blocks <= INT32_MAX) {
      kernel = kRows(dtype, static_cast<int>(each));
      grid = opdock::Dim3(blocks, down);
      blocks *= down;
    }
  }
  if (kernel == kTiles(dtype)) {
    const int64_t across = (params.outputs + kTileSide - 1) / kTileSide;
    const int64_t down = (rows + kTileSide - 1) / kTileSide;
    if (__builtin_mul_overflow(across, down, &blocks) || blocks > INT32_MAX) blocks = INT32_MAX;
    grid = opdock::Dim3(blocks);
  }
  opdock::Launch how = {grid, kTileThreads};
  how.flags = opdock::detail::pdl_launch_flags(call, blocks, kTileThreads);
  call.launch(kernel, how, params);
}

}  // namespace

void check_int8(const Weight& weight, const char* name, const char* scale_name, Tensor x) {
  check(weight.tensor, name).dtype(opdock::dtype_of<int8_t>()).same_device_as(x, "x");
  check(*weight.scale, scale_name)
      .dtype(opdock::dtype_of<float>())
      .same_device_as(x, "x")
      .contiguous()
      .aligned(sizeof(float));
  const int64_t groups = weight.scale->numel(), numel = weight.tensor.numel();
  if (numel == 0 || (groups > 0 && numel % groups == 0)) return;
  throw Error(OPDOCK_INVALID_ARGUMENT,
              concat("argument '", scale_name, "': found ", groups,
                     " scales, wanted one for each group of as many of the ", numel,
                     " elements of '", name, "'; pass a divisor of these"));
}

bool run_tiles(const Call& call, const Product& product, Tensor out) {
  TileParams params = make_params(product, out);
  const Dtype dtype = product.x.dtype();
  if (call.is_cpu()) {
    run_on_cpu(call, dtype, group_of(product.weight), params);
    return true;
  }
  if (!product.weight.scale) {
    run_one_row(call, dtype, params);
    return true;
  }
  set_groups(product, &params);
  if (takes_matrices(call, product, &params)) {
    run_on_matrices(call, dtype, params);
    return true;
  }
  if (may_copy_weight(call, product)) return false;
  run_on_gpu(call, dtype, params);
  return true;
}

}  // namespace linear
