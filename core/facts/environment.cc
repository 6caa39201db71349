// SPDX-License-Identifier: Apache-2.0
#include "facts/environment.h"

#include <unistd.h>

#include <cstdlib>
#include <initializer_list>

#include "base/configured.h"
#include "base/installed.h"

namespace opdock {
namespace {

std::string find_helper() {
  const std::string& folder = own_folder();
  // Next to the library (a wheel), in its build tree, in its prefix, in the configured folder.
  for (const std::string& path :
       {folder + "/opdock-probe", folder + "/facts/opdock-probe",
        folder + "/../libexec/opdock/opdock-probe", folder + "/../../libexec/opdock/opdock-probe",
        kConfiguredLibexecDir + std::string("/opdock-probe")}) {
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return {};
}

}  // namespace

Environment current_environment() {
  Environment environment;
  environment.helper = find_helper();
  for (const char* name :
       {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES",
        "HSA_XNACK", "HSA_OVERRIDE_GFX_VERSION", "TORCH_CUDA_ARCH_LIST", "PYTORCH_ROCM_ARCH"}) {
    if (const char* value = std::getenv(name)) environment.variables[name] = value;
  }
  // In a privileged program the caller must not choose where files are searched.
  for (const char* name :
       {"PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CUDA_HOME", "CUDA_PATH", "ROCM_PATH", "HOME"}) {
    if (const char* value = secure_getenv(name)) environment.variables[name] = value;
  }
  if (const char* root = secure_getenv("OPDOCK_KFD"); root != nullptr && *root != '\0') {
    environment.sysfs = std::string(root) + "/sys";
    environment.dev = std::string(root) + "/dev";
  }
  return environment;
}

}  // namespace opdock
