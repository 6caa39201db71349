// What CUDA's driver and HIP's have in common.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "driver/driver.h"
#include "driver/gpu_table.h"

namespace opdock {

// The legacy default stream and the per-thread one: numbers instead of handles, CUDA's and HIP's
// (6.1) alike.
inline void* const kStreamLegacy = reinterpret_cast<void*>(1);
inline void* const kStreamPerThread = reinterpret_cast<void*>(2);

// Not one of the default streams, which belong to whatever context, or device, is current.
inline bool is_handle(void* stream) {
  return stream != nullptr && stream != kStreamLegacy && stream != kStreamPerThread;
}
// Which of all streams cannot be captured.
inline bool is_legacy(void* stream) {
  return stream == nullptr || stream == kStreamLegacy;
}

// Gpu: derived from GpuEntry.
template <class Gpu>
class GpuDriver : public Driver {
 public:
  Status facts(int index, const opdock_device_facts** out) final {
    Gpu* gpu = nullptr;
    Status done = find_gpu(index, &gpu);
    if (done.ok()) *out = &gpu->facts;
    return done;
  }

  Status arch(int index, std::string* out) final {
    Gpu* gpu = nullptr;
    Status done = find_gpu(index, &gpu);
    if (done.ok()) *out = gpu->arch;
    return done;
  }

 protected:
  // As of GpuTable.
  GpuDriver(const char* type, const char* driver) : gpus_(type, driver) {}

  // Fills in what there is to know of a GPU; called once for each.
  virtual Status learn(int index, Gpu* gpu) = 0;

  Status find_gpu(int index, Gpu** out) {
    return gpus_.find(index, out, [this](int which, Gpu* gpu) { return learn(which, gpu); });
  }

  GpuTable<Gpu> gpus_;
};

}  // namespace opdock
