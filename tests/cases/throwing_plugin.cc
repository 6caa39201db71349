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
// All other members are 0.
const opdock_op op = [] {
  opdock_op made = {};
  made.struct_size = sizeof made;
  made.flags = OPDOCK_OP_THREAD_SAFE;
  made.schema = NAME "(Tensor x) -> Tensor";
  made.doc = "Does nothing.";
  made.num_shape_rules = 1;
  made.shape_rules = shape_rules;
  made.plan = plan;
  made.run = run;
  return made;
}();
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
