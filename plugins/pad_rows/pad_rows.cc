// pad_rows: checks its arguments, copies on the CPU, and launches the kernel.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <opdock/row_op.hpp>

#include "device/pad_rows_params.cuh"

namespace pad_rows {
namespace {

using opdock::Call;
using opdock::check;
using opdock::Error;
using opdock::Plan;
using opdock::Results;
using opdock::Tensor;
using opdock::detail::concat;

constexpr auto kPadRows =
    OPDOCK_KERNEL_FAMILY("pad_rows::pad_rows", opdock::KernelNumbers<2, 4, 8, 16>);
constexpr int64_t kGrainBytes = 64 << 10;  // that a thread of the CPU is worth waking for

void check_size(const char* name, int64_t found, int64_t least) {
  if (found >= least) return;
  throw Error(OPDOCK_INVALID_ARGUMENT,
              concat("argument '", name, "': found ", found, ", wanted at least the ", least,
                     " that 'x' has; to make it smaller take a slice of x"));
}

void plan(Plan& plan, Tensor x, int64_t rows, int64_t columns) {
  check(x, "x")
      .dtype(opdock::dtype_of<float>(), opdock::dtype_of<opdock::half>(),
             opdock::dtype_of<opdock::bfloat16>(), opdock::dtype_of<double>())
      .ndim_at_least(2);
  opdock::check_rows(x, "x");
  check_size("rows", rows, x.size(-2));
  check_size("columns", columns, x.size(-1));
  plan.output(x.like().with_size(-2, rows).with_size(-1, columns));
}

// In elements; without units that are larger.
Params make_params(Tensor x, Tensor out) {
  Params params = {};
  params.x = static_cast<const char*>(x.raw());
  params.out = static_cast<char*>(out.raw());
  params.rows = out.size(-2);
  params.columns = out.size(-1);
  params.x_rows = x.is_empty() ? 0 : x.size(-2);
  params.x_columns = x.size(-1);
  params.x_row_stride = params.x_rows > 1 ? x.stride(-2) : 0;
  params.matrices.count = 1;
  for (int32_t dim = 0; dim + 2 < x.ndim(); ++dim) {
    params.matrices.count *= x.size(dim);
    if (x.size(dim) == 1) continue;
    const int64_t stride = x.is_empty() ? 0 : x.stride(dim);
    opdock::Rows<1>& to = params.matrices;
    // Dimensions that lie evenly spaced count as one.
    const bool merge = to.ndim > 0 && to.stride[0][to.ndim - 1] == stride * x.size(dim);
    if (!merge) to.size[to.ndim++] = 1;
    to.size[to.ndim - 1] *= x.size(dim);
    to.stride[0][to.ndim - 1] = stride;
  }
  return params;
}

// Of the units that everything is a multiple of the largest, at most 16 bytes; and divides by it.
int64_t use_units(int64_t element_bytes, Params* params) {
  const auto address = [](const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); };
  const auto bytes = [&](long long count) {
    return static_cast<uintptr_t>(count) * static_cast<uintptr_t>(element_bytes);
  };
  uintptr_t all = 16 | address(params->x) | address(params->out) | bytes(params->columns) |
                  bytes(params->x_columns) | bytes(params->x_row_stride);
  for (int i = 0; i < params->matrices.ndim; ++i) all |= bytes(params->matrices.stride[0][i]);
  const int64_t unit = static_cast<int64_t>(all & ~(all - 1)), times = unit / element_bytes;
  params->columns /= times;
  params->x_columns /= times;
  params->x_row_stride /= times;
  for (int i = 0; i < params->matrices.ndim; ++i) params->matrices.stride[0][i] /= times;
  return unit;
}

void copy_rows(const Params& p, int64_t element_bytes, int64_t begin, int64_t end) {
  const size_t bytes = static_cast<size_t>(p.columns * element_bytes);
  const size_t x_bytes = static_cast<size_t>(p.x_columns * element_bytes);
  for (int64_t row = begin; row < end; ++row) {
    long long offset[1];
    p.matrices.locate(row / p.rows, offset);
    const int64_t place = row % p.rows;
    const size_t there = place < p.x_rows ? x_bytes : 0;
    char* const to = p.out + static_cast<size_t>(row) * bytes;
    if (there > 0)
      std::memcpy(to, p.x + (offset[0] + place * p.x_row_stride) * element_bytes, there);
    std::memset(to + there, 0, bytes - there);
  }
}

void run(Call& call, Results results, Tensor x, int64_t, int64_t) {
  const Tensor out = results[0];
  const int64_t element_bytes = x.dtype().bytes();
  check(out, "output 0").contiguous().aligned(static_cast<uint64_t>(element_bytes));
  if (out.is_empty()) return;
  Params params = make_params(x, out);
  const int64_t rows = params.matrices.count * params.rows;
  if (call.is_cpu()) {
    const int64_t grain = std::max<int64_t>(1, kGrainBytes / (params.columns * element_bytes));
    return call.parallel_for(rows, grain, [&](int64_t begin, int64_t end) {
      copy_rows(params, element_bytes, begin, end);
    });
  }
  const int64_t unit = use_units(element_bytes, &params);
  while (1 << params.lane_bits < std::min<int64_t>(kThreads, params.columns)) ++params.lane_bits;
  const int64_t in_block = kThreads >> params.lane_bits, blocks = (rows + in_block - 1) / in_block;
  if (blocks > 0x7fffffff)
    throw Error(OPDOCK_UNSUPPORTED,
                concat("argument 'x': found matrices of ", rows, " rows in all, wanted at most ",
                       in_block * 0x7fffffff, "; pass fewer at a time"));
  opdock::Launch how = {blocks, kThreads};
  how.flags = opdock::detail::turn_flags(call, blocks, kThreads);
  call.launch(kPadRows(unit), how, params);
}

}  // namespace
}  // namespace pad_rows

OPDOCK_OP(pad_rows, pad_rows::plan, nullptr, pad_rows::run)
