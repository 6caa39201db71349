// A C++ plugin that needs what most plugins need of libc and libstdc++; scan_bench copies it.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "opdock/plugin.h"

namespace {

std::mutex& mutex = *new std::mutex;
std::map<std::string, std::vector<int>>& seen = *new std::map<std::string, std::vector<int>>;

opdock_status plan(const opdock_call*, const opdock_value*, uint32_t, opdock_plan*) {
  return OPDOCK_OK;
}

opdock_status run(const opdock_call*, const opdock_value*, uint32_t count, opdock_value*,
                  uint32_t) try {
  const std::lock_guard lock(mutex);
  const std::string name = "call " + std::to_string(count);
  seen[name].push_back(static_cast<int>(std::lround(std::fma(count, 0.5, 1.0))));
  char text[32];
  std::snprintf(text, sizeof text, "%s", name.c_str());
  if (std::strcmp(text, "call 99") == 0) throw std::runtime_error(text);
  return OPDOCK_OK;
} catch (const std::exception&) {
  return OPDOCK_INTERNAL;
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
                              nullptr};

}  // namespace

extern "C" OPDOCK_EXPORT const opdock_plugin* OPDOCK_ENTRY(void) {
  return &plugin;
}
