// SPDX-License-Identifier: Apache-2.0
#include <opdock/op.hpp>

using namespace opdock;

static void plan(Plan& plan, Tensor x, double) {
  plan.output(x.like());
}

static void run(Call& call, Results out, Tensor x, double least) {
  dispatch<float, double>(x, "x", [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* px = x.data<T>();
    T* py = out[0].data<T>();
    call.parallel_for(x.numel(), 16384, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) py[i] = px[i] < T(least) ? T(least) : px[i];
    });
  });
}

OPDOCK_OP(clamp_min, plan, nullptr, run)
