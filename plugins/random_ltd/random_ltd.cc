// Implements token_gather, its gradient, and token_scatter_: copies of the tokens that an index
// chooses.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <opdock/op.hpp>

#include "device/tokens_params.cuh"

namespace random_ltd {
namespace {

using namespace opdock::usual;
using Units = KernelNumbers<2, 4, 8, 16>;
constexpr auto kCopy = OPDOCK_KERNEL_FAMILY("random_ltd::copy_tokens", Units);
constexpr auto kClear = OPDOCK_KERNEL_FAMILY("random_ltd::clear", Units);

constexpr int64_t kGrainBytes = 64 << 10;  // work that is worth waking a CPU thread for

void check_tokens(Tensor tensor, const char* name, bool batch_first, Tensor index) {
  check(tensor, name)
      .dtype(dtype_of<float>(), dtype_of<opdock::half>(), dtype_of<opdock::bfloat16>(),
             dtype_of<double>())
      .ndim(3);
  check(index, "index")
      .dtype(dtype_of<int32_t>())
      .same_device_as(tensor, name)
      .ndim(2)
      .size(0, tensor.size(batch_first ? 0 : 1));
}

// Checks a tensor of the tokens that the index chooses.
void check_part(Tensor part, const char* name, bool batch_first, Tensor all, const char* all_name,
                Tensor index) {
  const int batch = batch_first ? 0 : 1;
  check(part, name)
      .same_dtype_as(all, all_name)
      .same_device_as(all, all_name)
      .ndim(3)
      .size(batch, index.size(0))
      .size(1 - batch, index.size(1))
      .size(2, all.size(2));
}

// Returns where the tokens lie, with strides in bytes.
Tokens tokens_of(Tensor tensor, bool batch_first) {
  const int64_t bytes = tensor.dtype().bytes();
  const int batch = batch_first ? 0 : 1;
  const auto stride = [&](int dim) {
    return tensor.size(dim) > 1 ? tensor.stride(dim) * bytes : 0;
  };
  return {tensor.raw(), stride(batch), stride(1 - batch)};
}

int64_t blocks_of(int64_t count, int64_t per_block) {
  constexpr int64_t kMaxBlocks = (int64_t{1} << 32) / kThreads - 1;  // as AMD's driver takes them
  return std::min((count + per_block - 1) / per_block, kMaxBlocks);
}

// Returns the largest power of two, up to 16, of which all of these are multiples.
int64_t unit_of(std::initializer_list<int64_t> numbers) {
  int64_t all = 16;
  for (const int64_t number : numbers) all |= number;
  return all & -all;
}

template <class Params>
void launch(const Call& call, uint32_t kernel, int64_t blocks, const Params& params) {
  opdock::Launch how = {blocks, kThreads};
  how.flags = opdock::detail::pdl_launch_flags(call, blocks, kThreads);
  call.launch(kernel, how, params);
}

// params: strides and units are in bytes.
void launch_copy(const Call& call, CopyParams params) {
  const auto address = [](const void* pointer) {
    return static_cast<int64_t>(reinterpret_cast<uintptr_t>(pointer));
  };
  const int64_t unit = unit_of({address(params.all.data), address(params.part.data), params.units,
                                params.all.batch_stride, params.all.token_stride,
                                params.part.batch_stride, params.part.token_stride});
  params.units /= unit;
  for (Tokens* tokens : {&params.all, &params.part}) {
    tokens->batch_stride /= unit;
    tokens->token_stride /= unit;
  }
  while ((1 << params.lane_bits) < kThreads &&
         (int64_t{kUnitsPerThread} << params.lane_bits) < params.units)
    ++params.lane_bits;
  launch(call, kCopy(unit), blocks_of(params.rows, kThreads >> params.lane_bits), params);
}

void copy_on_cpu(const CopyParams& p, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const int64_t batch = row / p.kept, place = row % p.kept, token = p.index[row];
    if (token < 0 || token >= p.tokens)
      throw Error(OPDOCK_INVALID_ARGUMENT,
                  concat("argument 'index': found ", token, " in row ", batch,
                         ", wanted numbers from 0 to ", p.tokens - 1, "; pass numbers of tokens"));
    char* const all =
        static_cast<char*>(p.all.data) + batch * p.all.batch_stride + token * p.all.token_stride;
    char* const part =
        static_cast<char*>(p.part.data) + batch * p.part.batch_stride + place * p.part.token_stride;
    p.gathers ? std::memcpy(part, all, static_cast<size_t>(p.units))
              : std::memcpy(all, part, static_cast<size_t>(p.units));
  }
}

void copy(const Call& call, Tensor all, Tensor part, Tensor index, bool batch_first, bool gathers) {
  if (part.is_empty()) return;
  CopyParams params = {};
  params.all = tokens_of(all, batch_first);
  params.part = tokens_of(part, batch_first);
  params.index = index.data<const int32_t>();
  params.rows = index.numel();
  params.kept = index.size(1);
  params.tokens = all.size(batch_first ? 1 : 0);
  params.units = all.size(2) * all.dtype().bytes();
  params.gathers = gathers;
  if (!call.is_cpu()) return launch_copy(call, params);
  call.parallel_for(params.rows, std::max<int64_t>(1, kGrainBytes / params.units),
                    [&](int64_t begin, int64_t end) { copy_on_cpu(params, begin, end); });
}

void plan_gather(Plan& plan, Tensor x, Tensor index, bool batch_first) {
  check_tokens(x, "x", batch_first, index);
  const int batch = batch_first ? 0 : 1;
  plan.output(x.like().with_size(batch, index.size(0)).with_size(1 - batch, index.size(1)));
}

void run_gather(Call& call, Results results, Tensor x, Tensor index, bool batch_first) {
  opdock::check_rows(results[0], "output 0");
  copy(call, x, results[0], index, batch_first, true);
}

void plan_backward(Plan& plan, Tensor grad, Tensor x, Tensor index, bool batch_first) {
  check_tokens(x, "x", batch_first, index);
  check_part(grad, "grad", batch_first, x, "x", index);
  plan.output(x.like());
}

void run_backward(Call& call, Results results, Tensor grad, Tensor, Tensor index,
                  bool batch_first) {
  const Tensor out = results[0];
  check(out, "output 0").contiguous();
  if (out.is_empty()) return;
  const int64_t bytes = out.numel() * out.dtype().bytes();
  if (call.is_cpu()) {
    std::memset(out.raw(), 0, static_cast<size_t>(bytes));
  } else {
    const int64_t unit =
        unit_of({bytes, static_cast<int64_t>(reinterpret_cast<uintptr_t>(out.raw()))});
    const ClearParams params = {out.raw(), bytes / unit};
    launch(call, kClear(unit), blocks_of(params.units, kThreads), params);
  }
  copy(call, out, grad, index, batch_first, false);
}

void plan_scatter(Plan&, Tensor all, Tensor part, Tensor index, bool batch_first) {
  check_tokens(all, "all", batch_first, index);
  check_part(part, "part", batch_first, all, "all", index);
}

void run_scatter(Call& call, Results, Tensor all, Tensor part, Tensor index, bool batch_first) {
  copy(call, all, part, index, batch_first, false);
}

}  // namespace
}  // namespace random_ltd

OPDOCK_OP(token_gather, random_ltd::plan_gather, nullptr, random_ltd::run_gather)
OPDOCK_OP(token_gather_backward, random_ltd::plan_backward, nullptr, random_ltd::run_backward)
OPDOCK_OP(token_scatter_, random_ltd::plan_scatter, nullptr, random_ltd::run_scatter)
