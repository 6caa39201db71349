// Fills in hipDeviceProp_t, which has two layouts.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "config.h"

namespace softgpu::hip {

// Offsets of the members that are filled in; the others are zero.
struct Layout {
  size_t size;
  size_t name, memory, shared, registers, warp_size, threads, block, grid, major, minor,
      multiprocessors, l2, threads_per_multiprocessor, pci_bus, target_id, integrated;
};
inline constexpr Layout kBefore6 = {792, 0,   256, 264, 272, 276, 280, 284, 296,
                                    328, 332, 336, 340, 344, 368, 396, 652};
inline constexpr Layout kSince6 = {1472, 0,   288, 296, 304, 308, 320,  324, 336,
                                   360,  364, 388, 616, 624, 584, 1160, 396};

void fill_properties(const Gpu& gpu, int device, const Layout& layout, void* properties);

// Implements hipGetDeviceProperties for a layout.
int get_properties(const char* function, const Layout& layout, void* properties, int device);

}  // namespace softgpu::hip
