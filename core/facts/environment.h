// Names everything outside this process that the probes consult, so that tests can replace it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>

namespace opdock {

struct Environment {
  std::string nvml = "libnvidia-ml.so.1";  // a name or path for dlopen
  std::string cuda = "libcuda.so.1";       // only searched for, never initialised
  std::string helper;                      // opdock-probe's path; empty: none installed
  std::chrono::milliseconds helper_deadline{10000};
  // The roots of KFD's class/kfd and of its devices kfd and dri. If $OPDOCK_KFD is set, they are
  // below it: for containers that have them in another place, and for tests.
  std::string sysfs = "/sys";
  std::string dev = "/dev";
  std::string opt = "/opt";  // the folder of rocm, rocm-6.2.0, …
  std::string root;          // prefix of /usr where tools are searched; empty: the real root
  // The values of CUDA_VISIBLE_DEVICES, PATH and others; a variable that is not set is absent.
  std::map<std::string, std::string> variables;

  std::optional<std::string> variable(const std::string& name) const {
    const auto entry = variables.find(name);
    if (entry == variables.end()) return std::nullopt;
    return entry->second;
  }
};

// Returns this process's environment: the current variables, and the helper that belongs to this
// library. In a privileged program (AT_SECURE), variables that name folders are left out.
Environment current_environment();

}  // namespace opdock
