// SPDX-License-Identifier: Apache-2.0
#include "driver/cuda_launch.h"

#include <algorithm>
#include <array>
#include <mutex>

#include "driver/errors.h"

namespace opdock::cuda {

void read_params(const Api& api, Function function, LoadedKernel* kernel) {
  if (api.cuFuncGetParamInfo == nullptr) return;
  size_t offset = 0, size = 0;
  Result result = kSuccess;
  for (uint32_t i = 0; result == kSuccess; ++i) {
    result = api.cuFuncGetParamInfo(function, i, &offset, &size);
    if (result == kSuccess) kernel->param_sizes.push_back(static_cast<uint32_t>(size));
  }
  // The driver reports an invalid value for the index after the last parameter.
  if (result != kInvalidValue && kernel->param_sizes.empty()) return;
  kernel->num_params = static_cast<uint32_t>(kernel->param_sizes.size());
}

uint32_t allowed_flags(const Api& api, Function function) {
  int compiled_for = 0, version = 0;
  const bool can =
      api.cuFuncGetAttribute(&compiled_for, kFunctionPtxVersion, function) == kSuccess &&
      compiled_for >= 90 && api.cuDriverGetVersion(&version) == kSuccess && version >= 12030;
  return OPDOCK_LAUNCH_COOPERATIVE | (can ? OPDOCK_LAUNCH_PROGRAMMATIC : 0);
}

Status raise_shared(const Api& api, LoadedKernel* kernel, uint32_t bytes) {
  if (uint64_t{bytes} + kernel->static_shared > kernel->max_shared) {
    return too_much_shared_memory(bytes, kernel->max_shared, kernel->static_shared);
  }
  // One thread at a time: a smaller request must not lower the limit that a larger one has raised.
  static std::mutex& mutex = *new std::mutex;
  const std::lock_guard lock(mutex);
  if (bytes <= kernel->shared_limit.load(std::memory_order_relaxed)) return {};
  const int most = static_cast<int>(bytes);
  Result result = kSuccess;
  if (kernel->is_kernel) {
    result =
        api.cuKernelSetAttribute(kFunctionMaxDynamicShared, most, kernel->function, kernel->device);
  }
  if (result == kSuccess) {
    result = api.cuFuncSetAttribute(kernel->in_context, kFunctionMaxDynamicShared, most);
  }
  if (result == kSuccess) kernel->shared_limit.store(bytes, std::memory_order_relaxed);
  return status_of(api, result, "cuFuncSetAttribute");
}

Status launch_with_attributes(const Api& api, Function function, void* stream,
                              const opdock_launch& how, uint32_t flags) {
  if (api.cuLaunchKernelEx == nullptr) {
    return {OPDOCK_UNSUPPORTED,
            "launch(): found a driver without cuLaunchKernelEx, wanted one of CUDA 11.8 for "
            "clusters, cooperative and programmatic launches; upgrade the NVIDIA driver"};
  }
  const bool clusters = has_clusters(how);
  std::array<LaunchAttribute, 3> attributes{};
  uint32_t count = 0;
  if ((flags & OPDOCK_LAUNCH_COOPERATIVE) != 0) {
    attributes[count].id = kAttributeCooperative;
    attributes[count++].value.flag = 1;
  }
  if (clusters) {
    attributes[count].id = kAttributeCluster;
    for (int i = 0; i < 3; ++i) attributes[count].value.cluster[i] = std::max(how.cluster[i], 1u);
    ++count;
  }
  if ((flags & OPDOCK_LAUNCH_PROGRAMMATIC) != 0) {
    attributes[count].id = kAttributeProgrammatic;
    attributes[count++].value.flag = 1;
  }
  LaunchConfig config{{how.grid[0], how.grid[1], how.grid[2]},
                      {how.block[0], how.block[1], how.block[2]},
                      how.shared_bytes,
                      stream,
                      attributes.data(),
                      count};
  return status_of(api,
                   api.cuLaunchKernelEx(&config, function, const_cast<void**>(how.args), nullptr),
                   "cuLaunchKernelEx");
}

}  // namespace opdock::cuda
