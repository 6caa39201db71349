// Finds PyTorch: the one in this process, else the one of the environment's Python.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "base/version.h"
#include "facts/environment.h"
#include "facts/machine.h"

namespace opdock {

struct TorchInstall {
  std::string folder;           // the package's folder; empty: no PyTorch
  Version version;              // 2.13.0; empty: none, or unknown
  std::optional<Version> cuda;  // the version that it was built for; nullopt: none
};

// Reads files and starts no process. `machine`: what was found in this process. Thread-safe.
TorchInstall find_torch(const Environment& environment, const MachineFacts& machine);

// Returns "12.6" from the line "cuda: Optional[str] = '12.6'" in version.py in the package's
// folder; nullopt for a PyTorch without CUDA.
std::optional<Version> cuda_of_torch(const std::string& folder);

}  // namespace opdock
