// Implements pad_rows: checks its arguments, copies on the CPU, and launches the kernel.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
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
    OPDOCK_KERNEL_FAMILY("pad_rows::pad_rows", opdock::KernelTypes<float, opdock::half>);
constexpr uint32_t kShortRows = OPDOCK_KERNEL_INDEX("pad_rows::short_rows");
constexpr int64_t kGrainBytes = 64 << 10;  // work that is worth waking a CPU thread for

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

// Columns and strides count parts of elements; an element has `parts` of them.
Params make_params(Tensor x, Tensor out, int64_t parts) {
  Params params = {};
  params.x = x.raw();
  params.out = out.raw();
  params.rows = out.size(-2);
  params.columns = out.size(-1) * parts;
  params.x_rows = x.is_empty() ? 0 : x.size(-2);
  params.x_columns = x.size(-1) * parts;
  params.x_row_stride = params.x_rows > 1 ? x.stride(-2) * parts : 0;
  params.matrices.count = 1;
  for (int32_t dim = 0; dim + 2 < x.ndim(); ++dim) {
    params.matrices.count *= x.size(dim);
    if (x.size(dim) == 1) continue;
    const int64_t stride = x.is_empty() ? 0 : x.stride(dim) * parts;
    opdock::Rows<1>& to = params.matrices;
    // Merges dimensions that are evenly spaced into one.
    const bool merge = to.ndim > 0 && to.stride[0][to.ndim - 1] == stride * x.size(dim);
    if (!merge) to.size[to.ndim++] = 1;
    to.size[to.ndim - 1] *= x.size(dim);
    to.stride[0][to.ndim - 1] = stride;
  }
  return params;
}

// Returns whether short_rows handles this shape; if so, converts the sizes to vectors of 16 bytes.
bool use_vectors(int64_t element_bytes, Params* params) {
  const int64_t elements = 16 / element_bytes, vectors = params->columns / elements;
  long long* const sizes[] = {&params->columns, &params->x_columns, &params->x_row_stride};
  auto& strides = params->matrices.stride;
  long long all = 0;
  for (const long long* size : sizes) all |= *size;
  for (int i = 0; i < params->matrices.ndim; ++i) all |= strides[0][i];
  const uintptr_t addresses =
      reinterpret_cast<uintptr_t>(params->x) | reinterpret_cast<uintptr_t>(params->out);
  if (addresses % 16 != 0 || all % elements != 0 || vectors > kThreads ||
      !std::has_single_bit(static_cast<uint64_t>(vectors)))
    return false;
  for (long long* size : sizes) *size /= elements;
  for (int i = 0; i < params->matrices.ndim; ++i) strides[0][i] /= elements;
  params->lane_bits = std::countr_zero(static_cast<uint64_t>(vectors));
  return true;
}

void copy_rows(const Params& p, int64_t element_bytes, int64_t begin, int64_t end) {
  const size_t bytes = static_cast<size_t>(p.columns * element_bytes);
  const size_t x_bytes = static_cast<size_t>(p.x_columns * element_bytes);
  for (int64_t row = begin; row < end; ++row) {
    long long offset[1];
    p.matrices.locate(row / p.rows, offset);
    const int64_t place = row % p.rows;
    const size_t there = place < p.x_rows ? x_bytes : 0;
    char* const to = static_cast<char*>(p.out) + static_cast<size_t>(row) * bytes;
    if (there > 0)
      std::memcpy(
          to, static_cast<const char*>(p.x) + (offset[0] + place * p.x_row_stride) * element_bytes,
          there);
    std::memset(to + there, 0, bytes - there);
  }
}

void run(Call& call, Results results, Tensor x, int64_t, int64_t) {
  const Tensor out = results[0];
  const int64_t element_bytes = x.dtype().bytes();
  check(out, "output 0").contiguous().aligned();
  if (out.is_empty()) return;
  // The kernels only move bits, and treat a float64 as two floats.
  const bool is_halves = element_bytes == 2;
  Params params = make_params(x, out, call.is_cpu() || is_halves ? 1 : element_bytes / 4);
  const int64_t rows = params.matrices.count * params.rows;
  if (call.is_cpu()) {
    const int64_t grain = std::max<int64_t>(1, kGrainBytes / (params.columns * element_bytes));
    return call.parallel_for(rows, grain, [&](int64_t begin, int64_t end) {
      copy_rows(params, element_bytes, begin, end);
    });
  }
  const int64_t bytes = params.columns * (is_halves ? 2 : 4);
  const bool is_whole = (reinterpret_cast<uintptr_t>(params.out) | uintptr_t(bytes)) % 16 == 0;
  // A row that does not begin and end at a vector boundary touches one vector more than its length.
  params.slots = is_whole ? bytes / 16 : (bytes + 15) / 16 + 1;
  const bool is_short = use_vectors(is_halves ? 2 : 4, &params);
  const int64_t in_block = is_short ? kThreads : kThreads * kParts;
  int64_t vectors = 0;
  if (__builtin_mul_overflow(rows, params.slots, &vectors) || vectors > 0x7fffffff * in_block)
    throw Error(OPDOCK_UNSUPPORTED,
                concat("argument 'x': found matrices of ", rows, " rows in all, of ", params.slots,
                       " vectors, wanted at most ", 0x7fffffff * in_block,
                       " vectors; pass fewer at a time"));
  const int64_t blocks = (vectors + in_block - 1) / in_block;
  opdock::Launch how = {blocks, kThreads};
  how.flags = opdock::detail::pdl_launch_flags(call, blocks, kThreads);
  const auto dtype = is_halves ? opdock::dtype_of<opdock::half>() : opdock::dtype_of<float>();
  call.launch(is_short ? kShortRows : kPadRows(dtype), how, params);
}

}  // namespace
}  // namespace pad_rows

OPDOCK_OP(pad_rows, pad_rows::plan, nullptr, pad_rows::run)
