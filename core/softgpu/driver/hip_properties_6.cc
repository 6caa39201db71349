// The function of HIP 6 that HIP 5 lacks.
// SPDX-License-Identifier: Apache-2.0
#include "hip.h"
#include "hip_properties.h"

SOFTGPU_API softgpu::Result hipGetDevicePropertiesR0600(void* properties, int device) {
  return softgpu::hip::get_properties("hipGetDevicePropertiesR0600", softgpu::hip::kSince6,
                                      properties, device);
}
