// Describes a GPU that has no driver, for tests of what Opdock reports then.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>

#include "support/temporary_folder.h"

namespace opdock_test {

// Describes one MI250X in the kernel's (KFD's) file format and hides every real GPU of the machine.
// Affects only processes that start to look for GPUs while the object lives.
class DescribedGpu {
 public:
  DescribedGpu() {
    const std::string nodes = "sys/class/kfd/kfd/topology/nodes/";
    folder_.write("dev/kfd", "");
    folder_.write(nodes + "0/properties", "gfx_target_version 0\n");  // CPU
    folder_.write(nodes + "1/name", "aldebaran\n");
    folder_.write(nodes + "1/properties", "simd_count 440\ngfx_target_version 90010\n");
    setenv("OPDOCK_KFD", folder_.path().c_str(), 1);
    unsetenv("ROCR_VISIBLE_DEVICES");
    setenv("HIP_VISIBLE_DEVICES", "0", 1);
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
  }
  ~DescribedGpu() {
    for (const char* name : {"OPDOCK_KFD", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"})
      unsetenv(name);
  }

 private:
  TemporaryFolder folder_;
};

}  // namespace opdock_test
