// A plugin that breaks OPDOCK-P-4: its entry function or its init throws an exception.
// SPDX-License-Identifier: Apache-2.0
#include <stdexcept>

#include "opdock/plugin.h"

namespace {

struct Unknown {};

opdock_status plan(const opdock_call*, const opdock_value*, uint32_t, opdock_plan*) {
  return OPDOCK_OK;
}

opdock_status run(const opdock_call*, const opdock_value*, uint32_t, opdock_value*, uint32_t) {
  return OPDOCK_OK;
}

opdock_status init(const opdock_host*, char*, uint32_t) {
#ifdef INIT_THROWS
  throw INIT_THROWS;
#endif
  return OPDOCK_OK;
}

const char* const shape_rules[] = {"like x"};
const opdock_op op = {sizeof(opdock_op),
                      OPDOCK_OP_THREAD_SAFE,
                      NAME "(Tensor x) -> Tensor",
                      "Does nothing.",
                      0,
                      1,
                      shape_rules,
                      nullptr,
                      nullptr,
                      0,
                      0,
                      plan,
                      nullptr,
                      run,
                      nullptr,
                      nullptr};
const opdock_op* const ops[] = {&op};
const opdock_plugin plugin = {sizeof(opdock_plugin),
                              OPDOCK_ABI_MAJOR,
                              OPDOCK_ABI_MINOR,
                              1,
                              NAME,
                              "1.0",
                              ops,
                              nullptr,
                              0,
                              0,
                              init};

}  // namespace

const opdock_plugin* OPDOCK_ENTRY(void) {
#ifdef ENTRY_THROWS
  throw ENTRY_THROWS;
#endif
  return &plugin;
}
