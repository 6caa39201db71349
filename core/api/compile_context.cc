// SPDX-License-Identifier: Apache-2.0
#include "api/compile_context.h"

#include <cstdlib>
#include <string_view>

namespace opdock {

JitContext jit_context(opdock_runtime* runtime, Progress* progress, std::vector<Reason>* reasons) {
  JitContext context;
  static Cache* cache = Cache::open(cache_options_from_environment(reasons), reasons).release();
  context.cache = cache;
  context.progress = progress;
  const char* policy = secure_getenv("OPDOCK_JIT");
  if (policy != nullptr && std::string_view(policy) == "never") context.denied = "OPDOCK_JIT=never";
  context.cuda_driver = runtime->machine()->cuda_driver;
  return context;
}

}  // namespace opdock
