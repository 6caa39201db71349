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

// The kernels of an op over rows, three families of which launch_rows() chooses one:
//   short_rows<T>          a warp per row, at most kShortRowItems elements per lane
//   vector_rows<T, Items>  a block per row, at most Items 16-byte vectors per thread; Items is 1 or 4,
//                          and of float 8 too; only where rows are made of such vectors
//   any_rows<T>            a block per row
template <class Short, class Vector, class Any>
struct RowKernels {
  Short short_rows;
  Vector vector_rows;
  Any any_rows;
};
template <class Short, class Vector, class Any>
RowKernels(Short, Vector, Any) -> RowKernels<Short, Vector, Any>;

// Those that plugin.toml lists in the namespace NAME (a literal).
#define OPDOCK_ROW_KERNELS(NAME)                                       \
  ::opdock::RowKernels {                                               \
    OPDOCK_KERNEL_FAMILY(NAME "::short_rows", ::opdock::RowTypes),     \
        OPDOCK_KERNEL_FAMILY(NAME "::vector_rows", ::opdock::RowTypes, \
                             ::opdock::KernelNumbers<1, 4, 8>),        \
        OPDOCK_KERNEL_FAMILY(NAME "::any_rows", ::opdock::RowTypes)    \
  }

// Launches the one that suits the rows of x, on the call's stream. Each takes Params, which has
// members `rows` and `length` (of a row, at least 1), and goes on to further rows where there are
// more than blocks. vectors: whether rows are made of whole, aligned 16-byte vectors.
template <class Kernels, class Params>
void launch_rows(const Call& call, const Kernels& kernels, Tensor x, bool vectors,
                 const Params& params) {
  const int64_t warp = call.facts().warp_size;
  const int64_t bytes = x.dtype().bytes();
  const int64_t row_vectors = params.length * bytes / 16;
  const int64_t most_items = bytes == 4 ? 8 : 4;
  int64_t blocks = params.rows.count;
  int64_t threads;
  uint32_t kernel;
  if (params.length <= kShortRowItems * warp) {
    const int64_t warps = kShortRowThreads / warp;
    blocks = (blocks + warps - 1) / warps;
    threads = kShortRowThreads;
    kernel = kernels.short_rows(x.dtype());
  } else if (vectors && row_vectors <= most_items * kRowThreads) {
    const int items = row_vectors <= 256 ? 1 : row_vectors <= 4 * kRowThreads ? 4 : 8;
    threads = (row_vectors + items - 1) / items;
    kernel = kernels.vector_rows(x.dtype(), items);
  } else {
    threads = std::min<int64_t>(kRowThreads, params.length);
    kernel = kernels.any_rows(x.dtype());
  }
  threads = (threads + warp - 1) / warp * warp;
  call.launch(kernel, {std::min<int64_t>(blocks, 0x7fffffff), threads}, params);
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
