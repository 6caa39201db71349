// SPDX-License-Identifier: Apache-2.0
#include "facts/machine.h"

#include "facts/probes.h"

namespace opdock {

MachineFacts probe_machine(const Environment& environment) {
  MachineFacts facts;
  probe_cpu(&facts);
  probe_symbol_versions(&facts);
  probe_cuda(environment, &facts);
  probe_rocm(environment, &facts);
  return facts;
}

MachineFacts probe_machine() {
  // Never destroyed: threads may still ask while the process ends.
  static const MachineFacts& machine = *new MachineFacts(probe_machine(current_environment()));
  MachineFacts facts = machine;
  probe_in_process(&facts);
  return facts;
}

}  // namespace opdock
