// What nearly every file of the command includes, parsed once.
// SPDX-License-Identifier: Apache-2.0
#ifndef OPDOCK_CORE_CLI_PCH_PRECOMPILED_H_  // g++ warns of #pragma once in what it precompiles
#define OPDOCK_CORE_CLI_PCH_PRECOMPILED_H_

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#endif  // OPDOCK_CORE_CLI_PCH_PRECOMPILED_H_
