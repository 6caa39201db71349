// The harness without what the host checks of a call: this program calls the ops through libopdock,
// and with the harness only as they are meant to be called.
// SPDX-License-Identifier: Apache-2.0
#include "harness.h"

namespace opdock_test {

std::shared_ptr<const Op::Host> Op::host_of(const opdock_op*) {
  return nullptr;
}
void Op::check_arguments(const std::vector<opdock_value>&, Result*) const {}
void Op::check_outputs(const std::vector<opdock_value>&, const std::vector<Array*>&,
                       Result*) const {}

}  // namespace opdock_test
