// Implements bias_gelu: checks its arguments, computes on the CPU, and hands GPU tensors to
// bias_gelu.cu.
// SPDX-License-Identifier: Apache-2.0
#include "bias_gelu.h"

#include <cmath>
#include <opdock/stream_context.hpp>

namespace bias_gelu {
namespace {

using opdock::Call;
using opdock::check;
using opdock::Error;
using opdock::Plan;
using opdock::Results;
using opdock::Tensor;

void plan(Plan& plan, Tensor x, Tensor bias) {
  const uint64_t bytes = static_cast<uint64_t>(x.dtype().bytes());
  check(x, "x").ndim_at_least(1).contiguous().aligned(bytes);
  check(bias, "bias").same_dtype_as(x, "x").same_device_as(x, "x").ndim(1).size(0, x.size(-1));
  check(bias, "bias").contiguous().aligned(bytes);
  plan.output(x.like());
}

void check_output(Tensor out, Tensor x, Tensor bias) {
  check(out, "output 0").contiguous().aligned(static_cast<uint64_t>(x.dtype().bytes()));
  check(out, "output 0").in_place_or_apart_from(x, "x").no_overlap_with(bias, "bias");
}

void check_gpu(const char* problem) {
  if (problem == nullptr) return;
  throw Error(OPDOCK_DEVICE_ERROR, std::string("bias_gelu: the GPU's runtime says: ") + problem +
                                       "; `opdock explain bias_gelu` shows what the plugin has");
}

// Computes v * (1 + tanh(u)) / 2 in the same way as bias_gelu.cu.
float gelu(float v) {
  const float u = 0.7978845608f * (v + 0.044715f * v * v * v);
  return v / (1.0f + std::exp(-2.0f * u));
}

template <class T>
void run_rows(const T* x, const T* bias, T* out, int64_t length, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const int64_t first = row * length;
    for (int64_t i = 0; i < length; ++i)
      out[first + i] = T(gelu(float(x[first + i]) + float(bias[i])));
  }
}

void prepare(Call& call) {
  if (!call.is_cpu()) check_gpu(load_kernels());
}

void run(Call& call, Results outputs, Tensor x, Tensor bias) {
  const Tensor out = outputs[0];
  check_output(out, x, bias);
  if (x.numel() == 0) return;
  const int64_t length = x.size(-1);
  const int64_t rows = x.numel() / length;
  opdock::dispatch<float, opdock::half, opdock::bfloat16>(x, "x", [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (!call.is_cpu()) {
      constexpr Element kElement = std::is_same_v<T, float>          ? Element::kFloat32
                                   : std::is_same_v<T, opdock::half> ? Element::kFloat16
                                                                     : Element::kBfloat16;
      const opdock::StreamContext context(call);
      check_gpu(launch({kElement, x.raw(), bias.raw(), out.raw(), rows, length}, call.stream()));
      return;
    }
    const int64_t grain = length < 4096 ? 4096 / length + 1 : 1;
    call.parallel_for(rows, grain, [&](int64_t begin, int64_t end) {
      run_rows(x.data<T>(), bias.data<T>(), out.data<T>(), length, begin, end);
    });
  });
}

}  // namespace
}  // namespace bias_gelu

OPDOCK_OP(bias_gelu, bias_gelu::plan, bias_gelu::prepare, bias_gelu::run)
