// SPDX-License-Identifier: Apache-2.0
#include <opdock/kernel_names.hpp>

using namespace opdock;

static void plan_launches(Plan&, Tensor, int64_t) {}
static void run_launches(Call& call, Results, Tensor x, int64_t which) {
  const uint32_t kernels[] = {OPDOCK_KERNEL_INDEX("faulty<float>"), OPDOCK_KERNEL_INDEX("add<1>"),
                              OPDOCK_KERNEL_INDEX("add<2>"), OPDOCK_KERNEL_INDEX("add<3>")};
  call.launch(kernels[which], {1, 1}, x.data<float>());
}

static void plan_prepares(Plan&, Tensor) {}
static void prepare(Call& call) {
  call.kernel(OPDOCK_KERNEL_INDEX("add<1>"));
}
static void run_prepares(Call& call, Results, Tensor x) {
  call.launch(OPDOCK_KERNEL_INDEX("add<1>"), {1, 1}, x.data<float>());
}

OPDOCK_OP(launches, plan_launches, nullptr, run_launches)
OPDOCK_OP(prepares, plan_prepares, prepare, run_prepares)
