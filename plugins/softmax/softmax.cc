// softmax: checks its arguments and hands the rows to the CPU or GPU kernels.
// SPDX-License-Identifier: Apache-2.0
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
  check(out, "output 0")
      .contiguous_last_dim()
      .aligned(static_cast<uint64_t>(x.dtype().bytes()));
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

void launch(Call& call, const Params& params, Tensor x) {
  const int64_t warp = call.facts().warp_size;
  const int64_t rows = params.rows.count;
  constexpr int64_t kMaxBlocks = 0x7fffffff;
  const std::string element = element_name(x);
  // A lane of a short row holds 8 elements: kShortItems.
  if (params.length <= 8 * warp) {
    const int64_t warps = 128 / warp;
    call.launch(("softmax::short_rows<" + element + ">").c_str(),
                {std::min((rows + warps - 1) / warps, kMaxBlocks), 128}, params);
    return;
  }
  const int64_t bytes = x.dtype().bytes();
  const uint64_t element_bytes = static_cast<uint64_t>(bytes);
  const int64_t vector = 16 / bytes;
  const int64_t vectors = params.length / vector;
  const int64_t most_items = bytes == 4 ? 8 : 4;
  bool wide = params.length % vector == 0 && vectors <= most_items * 1024 &&
              opdock::rows_aligned(params.rows, 0, params.x, element_bytes, 16) &&
              opdock::rows_aligned(params.rows, 2, params.out, element_bytes, 16);
  if (params.mask && params.mask_step == 1)
    wide = wide && opdock::rows_aligned(params.rows, 1, params.mask, element_bytes, 16);
  const int64_t blocks = std::min(rows, kMaxBlocks);
  if (!wide) {
    const int64_t threads = std::min<int64_t>(1024, (params.length + warp - 1) / warp * warp);
    call.launch(("softmax::any_rows<" + element + ">").c_str(), {blocks, threads}, params);
    return;
  }
  const int64_t items = vectors <= 256 ? 1 : vectors <= 4 * 1024 ? 4 : 8;
  const int64_t threads = ((vectors + items - 1) / items + warp - 1) / warp * warp;
  call.launch(("softmax::vector_rows<" + element + ", " + std::to_string(items) + ">").c_str(),
              {blocks, threads}, params);
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
