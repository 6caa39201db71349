// Kernels of formulas with reductions, in which teams of threads have a row each.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "formula/device_source.h"

namespace opdock::formula {

// Returns the source of one kernel, as device_template() does; name: "" if it is no template.
std::string device_row_kernel(const Graph& graph, const DeviceShape& shape,
                              const std::string& name);

}  // namespace opdock::formula
