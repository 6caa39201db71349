// The op of axpy.c, written with plugin.hpp.
// SPDX-License-Identifier: Apache-2.0
#include <opdock/plugin.hpp>

static void plan(opdock::Plan& plan, opdock::Tensor x, opdock::Tensor y, double) {
  opdock::check(x, "x").contiguous();
  opdock::check(y, "y").same_shape_as(x, "x").same_dtype_as(x, "x").contiguous();
  plan.output(x.like());
}
static void run(opdock::Call& call, opdock::Results out, opdock::Tensor x, opdock::Tensor y,
                double a) {
  call.parallel_for(x.numel(), 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      out[0].data<float>()[i] =
          static_cast<float>(a) * x.data<const float>()[i] + y.data<const float>()[i];
    }
  });
}
OPDOCK_OP(abi_axpy, plan, nullptr, run)
