// SPDX-License-Identifier: Apache-2.0
#include "hip_properties.h"

#include <cstring>

#include "hip.h"
#include "launch.h"

namespace softgpu::hip {
namespace {

template <typename T>
void put(char* properties, size_t at, T value) {
  std::memcpy(properties + at, &value, sizeof value);
}

void put_text(char* properties, size_t at, const std::string& text) {
  constexpr size_t kSize = 256;
  std::strncpy(properties + at, text.c_str(), kSize - 1);
}

}  // namespace

void fill_properties(const Gpu& gpu, int device, const Layout& layout, void* out) {
  char* const properties = static_cast<char*>(out);
  const Limits limits = limits_of(gpu);
  std::memset(properties, 0, layout.size);
  put_text(properties, layout.name, gpu.name);
  put_text(properties, layout.target_id, gpu.arch);
  put(properties, layout.memory, size_t{gpu.memory});
  put(properties, layout.shared, size_t{limits.shared_per_block});
  put(properties, layout.registers, 65536);
  put(properties, layout.warp_size, static_cast<int>(gpu.warp_size));
  put(properties, layout.threads, 1024);
  for (size_t i = 0; i < 3; ++i) {
    put(properties, layout.block + i * sizeof(int), 1024);
    put(properties, layout.grid + i * sizeof(int), i == 0 ? 2147483647 : 65535);
  }
  put(properties, layout.major, gpu.major);
  put(properties, layout.minor, gpu.minor);
  put(properties, layout.multiprocessors, static_cast<int>(gpu.multiprocessors));
  put(properties, layout.l2, 8 << 20);
  put(properties, layout.threads_per_multiprocessor,
      static_cast<int>(limits.threads_per_multiprocessor));
  put(properties, layout.pci_bus, device + 1);
  put(properties, layout.integrated, gpu.integrated ? 1 : 0);
}

Result get_properties(const char* function, const Layout& layout, void* properties, int device) {
  DeviceContext* context = nullptr;
  Result result = enter_hip(function);
  if (result == kSuccess) result = find_context(device, &context);
  if (result == kSuccess && !properties) result = kInvalidValue;
  if (result == kSuccess) fill_properties(*context->gpu, device, layout, properties);
  return remember(result);
}

}  // namespace softgpu::hip

// Under this name, libraries of HIP 6 and 7 also use the layout of HIP 5.
SOFTGPU_API softgpu::Result hipGetDeviceProperties(void* properties, int device) {
  return softgpu::hip::get_properties("hipGetDeviceProperties", softgpu::hip::kBefore6, properties,
                                      device);
}
