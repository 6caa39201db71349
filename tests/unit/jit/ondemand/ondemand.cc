// SPDX-License-Identifier: Apache-2.0
#include <opdock/plugin.hpp>

using namespace opdock;

static void plan_launches(Plan&, Tensor, int64_t) {}
static void run_launches(Call& call, Outputs, Tensor x, int64_t which) {
  const char* const kernels[] = {"faulty<float>", "add<1>", "add<2>", "add<3>"};
  call.launch(kernels[which], {1, 1}, x.data<float>());
}

static void plan_prepares(Plan&, Tensor) {}
static void prepare(Call& call) {
  call.kernel("add<1>");
}
static void run_prepares(Call& call, Outputs, Tensor x) {
  call.launch("add<1>", {1, 1}, x.data<float>());
}

OPDOCK_OP(launches, plan_launches, nullptr, run_launches)
OPDOCK_OP(prepares, plan_prepares, prepare, run_prepares)
