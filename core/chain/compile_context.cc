// SPDX-License-Identifier: Apache-2.0
#include "chain/compile_context.h"

#include "chain/chain.h"

namespace opdock {

JitContext jit_context(opdock_runtime* runtime, Progress* progress, std::vector<Reason>* reasons) {
  JitContext context;
  context.cache = runtime->cache(reasons);
  context.progress = progress;
  context.denied = jit_denied(runtime);
  context.cuda_driver = runtime->machine()->cuda_driver;
  return context;
}

}  // namespace opdock
