/* A plugin in plain C that uses the ABI directly. It also checks with OPDOCK_HAS every struct that
 * the host hands it, as a plugin of any minor version would.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "opdock/plugin.h"

static const opdock_host* the_host;

opdock_status opdock_init(const opdock_host* host, char* error, uint32_t error_size);
opdock_status opdock_init(const opdock_host* host, char* error, uint32_t error_size) {
  if (!OPDOCK_HAS(host, opdock_host, set_error) || host->abi_major != OPDOCK_ABI_MAJOR) {
    if (error_size > 5) memcpy(error, "host", 5);
    return OPDOCK_INCOMPATIBLE;
  }
  the_host = host;
  return OPDOCK_OK;
}

opdock_status opdock_abi_axpy_plan(const opdock_call* call, const opdock_value* args,
                                   uint32_t num_args, opdock_plan* plan) {
  const opdock_tensor *x, *y;
  int32_t i;
#ifdef OPDOCK_TEST_NO_INIT
  the_host = call->host;
#endif
  if (num_args != 3) return OPDOCK_INTERNAL;
  x = args[0].as.tensor;
  y = args[1].as.tensor;
  if (x->ndim != y->ndim || memcmp(x->shape, y->shape, sizeof(int64_t) * (size_t)x->ndim) != 0) {
    return call->host->set_error(call, OPDOCK_INVALID_ARGUMENT,
                                 "argument 'y': found another shape than that of 'x'");
  }
  plan->outputs[0].dtype = x->dtype;
  plan->outputs[0].ndim = x->ndim;
  for (i = 0; i < x->ndim; ++i) plan->outputs[0].shape[i] = x->shape[i];
  plan->workspace_bytes = 64;
  return OPDOCK_OK;
}

struct work {
  const float *x, *y;
  float* out;
  float a;
};
static void body(void* context, uint64_t begin, uint64_t end) {
  const struct work* w = context;
  uint64_t i;
  for (i = begin; i < end; ++i) w->out[i] = w->a * w->x[i] + w->y[i];
}

opdock_status opdock_abi_axpy_run(const opdock_call* call, const opdock_value* args,
                                  uint32_t num_args, opdock_value* results, uint32_t num_results) {
  const opdock_tensor* x = args[0].as.tensor;
  const opdock_parallel* parallel;
  struct work w;
  uint64_t count = 1;
  int32_t i;
  (void)num_args;
  if (num_results != 1 || results[0].tag != OPDOCK_TAG_TENSOR || call->host != the_host ||
      call->workspace_bytes != 64 || call->device.type != OPDOCK_CPU || call->facts == NULL ||
      !OPDOCK_HAS(call->facts, opdock_device_facts, l2_bytes) || call->facts->warp_size != 1) {
    return call->host->set_error(call, OPDOCK_INTERNAL, "the call came wrong");
  }
  memset(call->workspace, 1, call->workspace_bytes);
  for (i = 0; i < x->ndim; ++i) count *= (uint64_t)x->shape[i];
  w.x = (const float*)x->data;
  w.y = (const float*)args[1].as.tensor->data;
  w.out = (float*)results[0].as.tensor->data;
  w.a = (float)args[2].as.f64;
  parallel = NULL;
#ifndef OPDOCK_TEST_SMALLER /* the smaller header ends before get_extension */
  if (OPDOCK_HAS(the_host, opdock_host, get_extension) && the_host->get_extension != NULL) {
    parallel = the_host->get_extension(OPDOCK_PARALLEL_2);
  }
#endif
  if (parallel != NULL) {
    parallel->parallel_for(call, count, 16, body, &w);
  } else {
    body(&w, 0, count);
  }
  return OPDOCK_OK;
}
