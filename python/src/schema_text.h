// What the schema's text says that opdock.h's parameter table does not.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "opdock/opdock.h"

namespace opdock::python {

// One entry per returned value: the index of the parameter that a result such as Tensor(a!) is, or
// -1 for a fresh output. The schema has been accepted by libopdock.
std::vector<int32_t> returned_params(const std::string& schema, const opdock_param* params,
                                     uint32_t num_params);

}  // namespace opdock::python
