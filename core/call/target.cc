// SPDX-License-Identifier: Apache-2.0
#include "call/target.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <map>
#include <tuple>

#include "base/mutex.h"
#include "call/host.h"
#include "call/parallel.h"
#include "schema/dtype.h"

namespace opdock {
namespace {

// Never destroyed: calls may still run while static objects are being destroyed.
struct Targets {
  Mutex mutex;
  std::map<std::tuple<const opdock_op*, int32_t, int32_t>, std::unique_ptr<Target>> targets;
  std::map<const opdock_op*, std::unique_ptr<ForkAwareLock>> serial;  // one per op, for all devices
};
Targets& targets_here = *new Targets;

// An op whose plans break its rules does so in its first calls already, if their arguments are of
// the kinds that the op is normally used with. `opdock test` has all plans checked.
uint32_t plans_to_check() {
  constexpr uint32_t kFirst = 8;
  const char* asked = secure_getenv("OPDOCK_CHECK_PLANS");
  return asked != nullptr && std::strcmp(asked, "all") == 0 ? UINT32_MAX : kFirst;
}

}  // namespace

bool Target::takes(opdock_dtype dtype) const {
  return dtypes.empty() || std::any_of(dtypes.begin(), dtypes.end(),
                                       [dtype](opdock_dtype known) { return same(known, dtype); });
}

Target* intern_target(const opdock_op* op, const std::string& plugin, opdock_device device,
                      const opdock_device_facts* facts, Driver* driver, Kernels* kernels,
                      const std::vector<opdock_dtype>& dtypes, std::vector<ShapeRule> rules,
                      Tuning* tuning, std::unique_ptr<const TensorRules> tensor_rules) {
  const std::lock_guard lock(targets_here.mutex);
  std::unique_ptr<Target>& place = targets_here.targets[{op, device.type, device.index}];
  if (place != nullptr) return place.get();
  place = std::make_unique<Target>();
  place->op = op;
  place->plugin = plugin;
  place->device = device;
  place->facts = facts;
  place->driver = driver;
  place->kernels = kernels;
  place->tuning = tuning;
  place->dtypes = dtypes;
  place->rules = std::move(rules);
  place->tensor_rules = std::move(tensor_rules);
  place->plans_to_check = place->rules.empty() ? 0 : plans_to_check();
  if (dtypes.empty()) place->dtype_bits.fill(0xff);
  for (opdock_dtype one : dtypes) {
    if (one.lanes == 1 && one.code < place->dtype_bits.size() && std::has_single_bit(one.bits)) {
      place->dtype_bits[one.code] |= one.bits;
    }
  }
  place->call.struct_size = sizeof place->call;
  place->call.host = host_table();
  place->call.device = device;
  place->call.facts = facts;
  if ((op->flags & OPDOCK_OP_THREAD_SAFE) == 0) {
    std::unique_ptr<ForkAwareLock>& serial = targets_here.serial[op];
    if (serial == nullptr) serial = std::make_unique<ForkAwareLock>();
    place->serial = serial.get();
  }
  return place.get();
}

const opdock_device_facts* cpu_facts() {
  const NoFork no_fork;
  static const opdock_device_facts facts = [] {
    opdock_device_facts cpu{};
    cpu.struct_size = sizeof cpu;
    cpu.type = OPDOCK_CPU;
    cpu.warp_size = 1;
    cpu.multiprocessors = cpu_cores();
    cpu.max_threads_per_block = 1;
    long pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGESIZE);
    if (pages > 0 && bytes > 0) {
      cpu.memory_bytes = static_cast<uint64_t>(pages) * static_cast<uint64_t>(bytes);
    }
    return cpu;
  }();
  return &facts;
}

}  // namespace opdock
