// The generated header by which OPDOCK_OP holds a plugin's functions to its plugin.toml.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "manifest/manifest.h"

namespace opdock::pack {

// C++17, for opdock/plugin.hpp, which includes it where OPDOCK_OPS_H names it: for each op a
// function that refuses, at compile time, a plan or run whose parameters are not the schema's. The
// messages name the op, the schema with its place, and the signature wanted in C++ types. And the
// kernels' names, in the declared order, for opdock/kernel_names.hpp.
std::string ops_header(const Manifest& manifest);

}  // namespace opdock::pack
