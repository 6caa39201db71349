// softmax: checks its arguments and hands the rows to the CPU or GPU kernels.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <opdock/plugin.hpp>
#include <opdock/rows.hpp>

#include "device/softmax_params.cuh"
#include "softmax_cpu.h"

namespace softmax {
namespace {

using opdock::bfloat16;
using opdock::Call;
using opdock::check;
using opdock::dtype_of;
using opdock::Error;
using opdock::half;
using opdock::Outputs;
using opdock::Plan;
using opdock::Tensor;

void check_mask(Tensor mask, Tensor x) {
  check(mask, "mask")
      .same_dtype_as(x, "x")
      .same_device_as(x, "x")
      .aligned(static_cast<uint64_t>(x.dtype().bytes()))
      .contiguous_last_dim();
  bool fits = mask.ndim() <= x.ndim();
  for (int32_t i = 1; fits && i <= mask.ndim(); ++i)
    fits = mask.size(-i) == x.size(-i) || mask.size(-i) == 1;
  if (!fits)
    throw Error(OPDOCK_INVALID_ARGUMENT,
                "argument 'mask': found shape " + mask.shape_text() +
                    ", wanted one that broadcasts to x's " + x.shape_text() +
                    "; give its dimensions size 1 where one mask serves all");
}

void plan(Plan& plan, Tensor x, double, std::optional<Tensor> mask, bool causal) {
  if (plan.is_cpu())
    check(x, "x").dtype(dtype_of<float>(), dtype_of<half>(), dtype_of<bfloat16>(),
                        dtype_of<double>());
  else
    check(x, "x").dtype(dtype_of<float>(), dtype_of<half>(), dtype_of<bfloat16>());
  check(x, "x")
      .ndim_at_least(causal ? 2 : 1)
      .contiguous_last_dim()
      .aligned(static_cast<uint64_t>(x.dtype().bytes()));
  if (mask) check_mask(*mask, x);
  plan.output(x.like());
}

// The output may be x itself; otherwise it shares no memory with an argument.
void check_output(Tensor out, Tensor x, const std::optional<Tensor>& mask) {
  check(out, "output 0").contiguous_last_dim().aligned(static_cast<uint64_t>(x.dtype().bytes()));
  bool same = out.raw() == x.raw();
  for (int32_t i = 0; same && i < x.ndim(); ++i)
    same = x.shape()[i] == 1 || x.strides()[i] == out.strides()[i];
  if (!same) check(out, "output 0").no_overlap_with(x, "x");
  if (mask) check(out, "output 0").no_overlap_with(*mask, "mask");
}

const char* element_name(Tensor x) {
  if (x.dtype() == dtype_of<float>()) return "float";
  return x.dtype() == dtype_of<half>() ? "opdock::half" : "opdock::bfloat16";
}

// Whether every row is made of whole 16-byte vectors that a thread can load.
bool is_wide(const Params& params, int64_t bytes) {
  const uint64_t element = static_cast<uint64_t>(bytes);
  return params.length % (16 / bytes) == 0 &&
         opdock::rows_aligned(params.rows, 0, params.x, element, 16) &&
         opdock::rows_aligned(params.rows, 2, params.out, element, 16) &&
         (!params.mask || params.mask_step == 0 ||
          opdock::rows_aligned(params.rows, 1, params.mask, element, 16));
}

void launch(Call& call, const Params& params, Tensor x) {
  const int64_t warp = call.facts().warp_size;
  const int64_t rows = params.rows.count;
  const int64_t bytes = x.dtype().bytes();
  const int64_t vectors = params.length * bytes / 16;
  const int64_t most_items = bytes == 4 ? 8 : 4;
  int64_t blocks = rows;
  int64_t threads;
  char name[80];
  if (params.length <= 8 * warp) {  // a lane holds 8 elements: kShortItems
    const int64_t warps = 128 / warp;
    blocks = (rows + warps - 1) / warps;
    threads = 128;
    std::snprintf(name, sizeof name, "softmax::short_rows<%s>", element_name(x));
  } else if (is_wide(params, bytes) && vectors <= most_items * 1024) {
    const int items = vectors <= 256 ? 1 : vectors <= 4 * 1024 ? 4 : 8;
    threads = (vectors + items - 1) / items;
    std::snprintf(name, sizeof name, "softmax::vector_rows<%s, %d>", element_name(x), items);
  } else {
    threads = std::min<int64_t>(1024, params.length);
    std::snprintf(name, sizeof name, "softmax::any_rows<%s>", element_name(x));
  }
  threads = (threads + warp - 1) / warp * warp;
  // Kernels go on to further rows where there are more than a grid may have blocks.
  call.launch(name, {std::min<int64_t>(blocks, 0x7fffffff), threads}, params);
}

void prepare(Call& call) {
  if (call.is_cpu()) return;
  call.kernel("softmax::short_rows<float>");  // loads the image: all its kernels
}

void run(Call& call, Outputs outputs, Tensor x, double scale, std::optional<Tensor> mask,
         bool causal) {
  const Tensor out = outputs[0];
  check_output(out, x, mask);
  if (x.numel() == 0) return;
  const int64_t length = x.size(-1);
  const int64_t queries = causal ? x.size(-2) : 1;
  const int64_t mask_step = mask && mask->ndim() > 0 && mask->size(-1) > 1 ? 1 : 0;
  const opdock::Rows<3> rows = opdock::make_rows<3>({x, mask, out});
  if (!call.is_cpu()) {
    Params params = {};
    params.x = x.raw();
    params.mask = mask ? mask->raw() : nullptr;
    params.out = out.raw();
    params.length = length;
    params.mask_step = mask_step;
    params.queries = queries;
    params.scale = static_cast<float>(scale);
    params.causal = causal;
    params.rows = rows;
    launch(call, params, x);
    return;
  }
  const Job job = {x.dtype() == dtype_of<float>()      ? Element::kFloat32
                   : x.dtype() == dtype_of<half>()     ? Element::kFloat16
                   : x.dtype() == dtype_of<bfloat16>() ? Element::kBFloat16
                                                       : Element::kFloat64,
                   x.raw(),
                   mask ? mask->raw() : nullptr,
                   out.raw(),
                   length,
                   mask_step,
                   scale,
                   causal,
                   queries,
                   rows};
  using Kernel = void (*)(const Job&, int64_t, int64_t);
  static const Kernel kernel = OPDOCK_SIMD_CHOOSE(run);
  // A thread is worth waking for some ten microseconds of work.
  call.parallel_for(rows.count, std::max<int64_t>(1, 16384 / length),
                    [&](int64_t begin, int64_t end) { kernel(job, begin, end); });
}

}  // namespace
}  // namespace softmax

OPDOCK_OP(softmax, softmax::plan, softmax::prepare, softmax::run)
