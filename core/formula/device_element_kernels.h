// Kernels of formulas without reductions, whose threads have a vector of elements each.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "formula/device_source.h"

namespace opdock::formula {

// Each returns the source of one kernel, as device_template() does; name: "" if it is no template.
std::string device_element_kernel(const Graph& graph, const DeviceShape& shape,
                                  const std::string& name);
// Returns the kernel for DeviceShape::transposed.
std::string device_tile_kernel(const Graph& graph, const DeviceShape& shape,
                               const std::string& name);

}  // namespace opdock::formula
