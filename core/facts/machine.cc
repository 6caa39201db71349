// SPDX-License-Identifier: Apache-2.0
#include "facts/machine.h"

#include <memory>

#include "base/fork_aware_lock.h"
#include "facts/probes.h"

namespace opdock {
namespace {

struct Known {
  ForkAwareLock lock;
  std::unique_ptr<const MachineFacts> facts;
};
Known& known = *new Known;  // never destroyed: threads may still use it while the process ends

}  // namespace

MachineFacts probe_machine(const Environment& environment) {
  MachineFacts facts;
  probe_cpu(&facts);
  probe_symbol_versions(&facts);
  probe_cuda(environment, &facts);
  probe_rocm(environment, &facts);
  return facts;
}

MachineFacts probe_machine() {
  MachineFacts facts;
  {
    const ForkAwareGuard guard(&known.lock);
    if (known.facts == nullptr) {
      known.facts = std::make_unique<const MachineFacts>(probe_machine(current_environment()));
    }
    facts = *known.facts;
  }
  probe_in_process(&facts);
  return facts;
}

}  // namespace opdock
