// Where the probes look. Everything outside this process that they consult is named here, so that
// tests can put their own in its place.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>

namespace opdock {

struct Environment {
  std::string nvml = "libnvidia-ml.so.1";  // a name or path for dlopen
  std::string cuda = "libcuda.so.1";       // only looked for, never initialised
  std::string helper;                      // opdock-probe's path; empty: none installed
  std::chrono::milliseconds helper_deadline{10000};
  // Where KFD's class/kfd and its devices kfd and dri are; below $OPDOCK_KFD if that is set, for
  // containers that see them elsewhere, and for tests.
  std::string sysfs = "/sys";
  std::string dev = "/dev";
  std::string opt = "/opt";  // where rocm, rocm-6.2.0, … are
  std::string root;          // before /usr where tools are looked for; empty: the real one
  // CUDA_VISIBLE_DEVICES, PATH and the like; one that is not set is absent.
  std::map<std::string, std::string> variables;

  std::optional<std::string> variable(const std::string& name) const {
    const auto entry = variables.find(name);
    if (entry == variables.end()) return std::nullopt;
    return entry->second;
  }
};

// This process's own: its variables as they are now, and the helper that belongs to this library.
// In a privileged program (AT_SECURE) the variables that name folders are left out.
Environment current_environment();

}  // namespace opdock
