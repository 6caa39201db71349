// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <opdock/kernel_names.hpp>

using namespace opdock;

static constexpr uint32_t kKernel = 0;  // index in plugin.toml's list

static void plan(Plan& plan, Tensor x) {
  check(x, "x").contiguous().ndim(2);
  plan.output(x.like());
}

static void prepare(Call& call) {
  if (!call.is_cpu()) call.kernel(kKernel);
}

static void run(Call& call, Results out, Tensor x) {
  const int64_t rows = x.size(0), length = x.size(1);
  const float* from = x.data<float>();
  float* to = out[0].data<float>();
  if (rows == 0 || length == 0) return;
  if (!call.is_cpu()) {
    call.launch(kKernel, {(rows + 31) / 32, 32}, from, to, rows, length);
    return;
  }
  for (int64_t row = 0; row < rows; ++row, from += length, to += length) {
    const float most = *std::max_element(from, from + length);
    float sum = 0;
    for (int64_t i = 0; i < length; ++i) sum += to[i] = std::exp(from[i] - most);
    for (int64_t i = 0; i < length; ++i) to[i] /= sum;
  }
}

OPDOCK_OP(softmax, plan, prepare, run)
