// Generates the header by which OPDOCK_OP checks a plugin's functions against its plugin.toml.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "manifest/manifest.h"

namespace opdock::pack {

// Returns C++17 source for opdock/plugin.hpp, which includes it if OPDOCK_OPS_H names it. For each
// op it has a function that refuses, at compile time, a plan or run whose parameters are not the
// schema's. The messages name the op, the schema with its place, and the wanted signature in C++
// types. It also has the kernels' names, in the declared order, for opdock/kernel_names.hpp.
std::string ops_header(const Manifest& manifest);

}  // namespace opdock::pack
