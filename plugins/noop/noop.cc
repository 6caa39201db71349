// Ops that do nothing, written directly on the C interface. They measure what a call costs without
// any work.
// SPDX-License-Identifier: Apache-2.0
#include "opdock/plugin.h"

extern "C" {

opdock_status opdock_noop_plan(const opdock_call*, const opdock_value*, uint32_t, opdock_plan*) {
  return OPDOCK_OK;
}

opdock_status opdock_noop_run(const opdock_call*, const opdock_value*, uint32_t, opdock_value*,
                              uint32_t) {
  return OPDOCK_OK;
}

opdock_status opdock_noop_launch_plan(const opdock_call*, const opdock_value*, uint32_t,
                                      opdock_plan*) {
  return OPDOCK_OK;
}

opdock_status opdock_noop_launch_prepare(const opdock_call* call) {
  opdock_kernel* kernel = nullptr;
  if (call->device.type == OPDOCK_CPU) return OPDOCK_OK;
  return call->host->kernel(call, 0, &kernel);
}

opdock_status opdock_noop_launch_run(const opdock_call* call, const opdock_value*, uint32_t,
                                     opdock_value*, uint32_t) {
  if (call->device.type == OPDOCK_CPU) return OPDOCK_OK;
  opdock_kernel* kernel = nullptr;
  opdock_status status = call->host->kernel(call, 0, &kernel);
  if (status != OPDOCK_OK) return status;
  opdock_launch launch{};
  launch.struct_size = sizeof(launch);
  for (int i = 0; i < 3; ++i) launch.grid[i] = launch.block[i] = 1;
  return call->host->launch(call, kernel, &launch);
}

}  // extern "C"
