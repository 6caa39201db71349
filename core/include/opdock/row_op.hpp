// opdock/row_op.hpp: for plugins whose ops work along the last dimension: what such an op checks of
// its tensors, and how it hands their rows to its kernels on the CPU and on the GPU.
// SPDX-License-Identifier: Apache-2.0
#ifndef OPDOCK_ROW_OP_HPP_
#define OPDOCK_ROW_OP_HPP_

#include <algorithm>
#include <cstdio>

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

// What device code calls x's element type in a kernel's name; of the types that check_row_dtype()
// lets through to a GPU.
inline const char* device_type_name(Tensor x) {
  if (x.dtype() == dtype_of<float>()) return "float";
  return x.dtype() == dtype_of<half>() ? "opdock::half" : "opdock::bfloat16";
}

// Launches the one of three kernels that suits the rows, on the call's stream. They stand in
// `name_space`, T is x's element type, and each takes Params, which has members `rows` and `length`
// (of a row, at least 1), and goes on to further rows where there are more than blocks:
//   short_rows<T>          a warp a row, at most kShortRowItems elements a lane
//   vector_rows<T, Items>  a block a row, at most Items 16-byte vectors a thread; Items is 1 or 4,
//                          and of float 8 too; only where `vectors` says that rows are made of such
//   any_rows<T>            a block a row
template <class Params>
void launch_rows(const Call& call, const char* name_space, Tensor x, bool vectors,
                 const Params& params) {
  const int64_t warp = call.facts().warp_size;
  const int64_t bytes = x.dtype().bytes();
  const int64_t row_vectors = params.length * bytes / 16;
  const int64_t most_items = bytes == 4 ? 8 : 4;
  const char* type = device_type_name(x);
  int64_t blocks = params.rows.count;
  int64_t threads;
  char name[128];
  if (params.length <= kShortRowItems * warp) {
    const int64_t warps = kShortRowThreads / warp;
    blocks = (blocks + warps - 1) / warps;
    threads = kShortRowThreads;
    std::snprintf(name, sizeof name, "%s::short_rows<%s>", name_space, type);
  } else if (vectors && row_vectors <= most_items * kRowThreads) {
    const int items = row_vectors <= 256 ? 1 : row_vectors <= 4 * kRowThreads ? 4 : 8;
    threads = (row_vectors + items - 1) / items;
    std::snprintf(name, sizeof name, "%s::vector_rows<%s, %d>", name_space, type, items);
  } else {
    threads = std::min<int64_t>(kRowThreads, params.length);
    std::snprintf(name, sizeof name, "%s::any_rows<%s>", name_space, type);
  }
  threads = (threads + warp - 1) / warp * warp;
  call.launch(name, {std::min<int64_t>(blocks, 0x7fffffff), threads}, params);
}

// Calls body(begin, end) on disjoint ranges that make up the rows [0, count), on the host's
// threads; waits for all. length: of a row, at least 1.
template <class Body>
void for_rows(const Call& call, int64_t count, int64_t length, Body&& body) {
  // A thread is worth waking for some ten microseconds of work.
  call.parallel_for(count, std::max<int64_t>(1, 16384 / length), body);
}

}  // namespace opdock
#endif  // OPDOCK_ROW_OP_HPP_
