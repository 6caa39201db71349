// opdock/row_op.hpp: for plugins whose ops work along the last dimension: what such an op checks of
// its tensors, and how it hands their rows to its kernels on the CPU and on the GPU.
// SPDX-License-Identifier: Apache-2.0
#ifndef OPDOCK_ROW_OP_HPP_
#define OPDOCK_ROW_OP_HPP_

#include <algorithm>

#include "opdock/kernel_names.hpp"
#include "opdock/plugin.hpp"
#include "opdock/rows.hpp"

namespace opdock {

// The element types of kernels over rows: float32, float16 and bfloat16, computed in float32; on
// the CPU float64 as well. Throws an Error that names the argument.
inline void check_row_dtype(const Plan& plan, Tensor tensor, const char* name) {
  if (plan.is_cpu()) {
    check(tensor, name)
        .dtype(dtype_of<float>(), dtype_of<half>(), dtype_of<bfloat16>(), dtype_of<double>());
  } else {
    check(tensor, name).dtype(dtype_of<float>(), dtype_of<half>(), dtype_of<bfloat16>());
  }
}

// Each row without gaps, each element aligned; batch dimensions may have any strides. Throws an
// Error that names the argument.
inline void check_rows(Tensor tensor, const char* name) {
  check(tensor, name).contiguous_last_dim().aligned(static_cast<uint64_t>(tensor.dtype().bytes()));
}

// The element types of such kernels on a GPU.
using RowTypes = KernelTypes<float, half, bfloat16>;

// What is known of the rows of a launch's tensors, and of what is read beside them.
enum class RowFit {
  kPlain,  // evenly spaced, whole vectors of 16 bytes, all aligned
  kAlike,  // row r of each tensor is misaligned as row r of the others
  kAny,
};

// The fit of the tensors in `rows` with these first elements, and of what is read beside each row
// from `sides` on; NULL for one that does not count.
template <int N, size_t Sides>
RowFit fit_of(const Rows<N>& rows, int64_t length, int64_t element_bytes,
              const void* const (&data)[N], const void* const (&sides)[Sides]) {
  const uint64_t bytes = static_cast<uint64_t>(element_bytes);
  uint64_t all = rows.is_flat() ? 0 : 1, differences = 0;
  int first = -1;
  for (int t = 0; t < N; ++t) {
    if (data[t] == nullptr) continue;
    if (first < 0) first = t;
    const uint64_t at = reinterpret_cast<uintptr_t>(data[t]);
    all |= at;
    differences |= at - reinterpret_cast<uintptr_t>(data[first]);
    for (int i = 0; i < rows.ndim; ++i) {
      const uint64_t stride = static_cast<uint64_t>(rows.stride[t][i]) * bytes;
      all |= stride;
      differences |= stride - static_cast<uint64_t>(rows.stride[first][i]) * bytes;
    }
  }
  if (differences % 16 != 0) return RowFit::kAny;
  for (const void* side : sides) all |= reinterpret_cast<uintptr_t>(side);
  all |= static_cast<uint64_t>(length) * bytes;
  return all % 16 == 0 ? RowFit::kPlain : RowFit::kAlike;
}

// Rows of at most `most` vectors, kept `vectors` in each thread.
struct RowWay {
  int vectors;
  int64_t most;
};
// Which way is the fastest was measured on an H200 (docs/performance.md). Kernels that need few
// registers do well with few vectors a thread, and many threads, up to 16 KiB.
constexpr RowWay kLightRows[] = {{2, 1024}, {4, 2048}, {8, 8192}};
constexpr RowWay kHeavyRows[] = {{2, 256}, {4, 4096}, {8, 8192}};
// Of two tensors that are held.
constexpr RowWay kLightPairs[] = {{2, 1024}, {4, 4096}, {8, 8192}};

// The last template argument of narrow_rows and block_rows (row_team.cuh).
using RowEdges = KernelNumbers<0, 1>;

// A family of which an op has no kernels.
struct NoKernels {
  template <class... Values>
  constexpr uint32_t find(const Values&...) const {
    return detail::kNoKernel;
  }
};

// The kernels that OPDOCK_ROW_KERNELS (row_team.cuh) makes of one op, as plugin.toml lists them:
//   OPDOCK_KERNEL_FAMILY("NAMESPACE::narrow_rows", RowTypes, RowEdges)
//   OPDOCK_KERNEL_FAMILY("NAMESPACE::block_rows", RowTypes, KernelNumbers<2, 8>, RowEdges)
//   OPDOCK_KERNEL_FAMILY("NAMESPACE::long_rows", RowTypes)
// Those with edges serve where those without are not listed.
template <class Narrow, class Block, class Long>
struct RowKernels {
  int tiles;                // that the op holds at once: its kTiles
  const RowWay (&ways)[3];  // in ascending order
  Narrow narrow_rows;
  Block block_rows;
  Long long_rows;
};
template <class Narrow, class Block, class Long>
RowKernels(int, const RowWay (&)[3], Narrow, Block, Long) -> RowKernels<Narrow, Block, Long>;

// Lanes of a row that shares its block with others, at most; with more, a block of its own is
// faster.
constexpr int64_t kMostNarrowLanes = 16;
constexpr int64_t kMostCluster = 8;  // blocks that every GPU with clusters can run together

namespace detail {

inline int64_t power_of_two(int64_t least) {
  int64_t power = 1;
  while (power < least) power *= 2;
  return power;
}

// Where one row has one block or one cluster: blocks in two dimensions if one does not take them.
inline Launch row_launch(int64_t blocks, int64_t threads, int64_t cluster = 1) {
  constexpr int64_t kMost = int64_t{1} << 30;
  Launch launch = {Dim3(std::min(blocks, kMost), (blocks + kMost - 1) / kMost), threads};
  if (cluster > 1) launch.cluster = Dim3(cluster);
  return launch;
}

}  // namespace detail

// Launches the kernel that suits the rows, of at least one element, on the call's stream. False:
// none of these does. Sets params->shape; the other members of Params are as row_team.cuh wants
// them.
template <class Kernels, class Params>
bool launch_rows(const Call& call, const Kernels& kernels, Dtype dtype, RowFit fit,
                 Params* params) {
  const int64_t warp = call.facts().warp_size, rows = params->rows.count;
  const int64_t vectors = params->length * dtype.bytes() / 16;
  const int64_t edges = fit == RowFit::kPlain ? 0 : 1;
  const auto launch = [&](uint32_t kernel, int64_t blocks, int64_t threads, int64_t cluster = 1) {
    call.launch(kernel, detail::row_launch(blocks, threads, cluster), *params);
    return true;
  };
  params->shape.by_vectors = fit != RowFit::kAny;

  int64_t lanes = detail::power_of_two((vectors + kNarrowVectors - 1) / kNarrowVectors);
  if (edges != 0) lanes = std::max<int64_t>(lanes, 32 / dtype.bytes());  // one for each at an edge
  uint32_t narrow = kernels.narrow_rows.find(dtype, edges);
  if (narrow == detail::kNoKernel) narrow = kernels.narrow_rows.find(dtype, 1);
  if (fit != RowFit::kAny && lanes <= kMostNarrowLanes && narrow != detail::kNoKernel) {
    params->shape.lane_bits = 0;
    while ((int64_t{1} << params->shape.lane_bits) < lanes) ++params->shape.lane_bits;
    const int64_t in_block = kNarrowThreads / lanes;
    return launch(narrow, (rows + in_block - 1) / in_block, kNarrowThreads);
  }

  const bool can_cluster = call.is_cuda() && call.facts().arch_major >= 9;
  for (const RowWay& way : kernels.ways) {
    if (fit == RowFit::kAny) break;
    uint32_t kernel = kernels.block_rows.find(dtype, way.vectors, edges);
    if (kernel == detail::kNoKernel) kernel = kernels.block_rows.find(dtype, way.vectors, 1);
    if (kernel == detail::kNoKernel) continue;
    const int held = way.vectors * kernels.tiles;
    const int64_t most = row_threads(held);
    int64_t threads = detail::power_of_two((vectors + way.vectors - 1) / way.vectors), cluster = 1;
    if (can_cluster && has_clusters(held) && threads > most) {
      cluster = threads / most;
      threads = most;
    }
    if (threads > most || cluster > kMostCluster || vectors > way.most * cluster) continue;
    return launch(kernel, rows * cluster, std::max(threads, warp), cluster);
  }
  const uint32_t kernel = kernels.long_rows.find(dtype);
  if (kernel == detail::kNoKernel) return false;
  const int64_t threads = detail::power_of_two(std::min<int64_t>(params->length, kLongThreads));
  return launch(kernel, rows, std::max(threads, warp));
}

// Calls body(begin, end) on disjoint ranges that make up the rows [0, count), on the host's
// threads; waits for all. length: of a row, at least 1.
template <class Body>
void for_rows(const Call& call, int64_t count, int64_t length, Body&& body) {
  // A second thread pays off for some ten microseconds of work; a row takes as long as some 64
  // elements before its first one.
  call.parallel_for(count, std::max<int64_t>(1, 8192 / (length + 64)), body);
}

}  // namespace opdock
#endif  // OPDOCK_ROW_OP_HPP_
