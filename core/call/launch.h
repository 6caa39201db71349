// Checks of a launch that a plugin (opdock_host.launch) or a program (opdock_launch_kernel)
// requests.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "opdock/plugin.h"

namespace opdock {

// Returns the launch in the layout of this host's opdock_launch: `launch` itself, or a copy in
// *room. Returns NULL and sets *problem ("found …, wanted …; what to do") if it cannot be launched.
inline const opdock_launch* read_launch(const opdock_kernel* kernel, const opdock_launch* launch,
                                        opdock_launch* room, std::string* problem) {
  if (kernel == nullptr || launch == nullptr) {
    *problem = "found a NULL kernel or launch, wanted both; pass both";
    return nullptr;
  }
  if (launch->struct_size != sizeof *room) {
    if (!OPDOCK_HAS(launch, opdock_launch, num_args)) {
      *problem = "found struct_size " + std::to_string(launch->struct_size) +
                 ", which ends before num_args, wanted at least " +
                 std::to_string(offsetof(opdock_launch, num_args) + sizeof launch->num_args) +
                 "; set it to sizeof(opdock_launch)";
      return nullptr;
    }
    *room = {};
    std::memcpy(room, launch, std::min<size_t>(launch->struct_size, sizeof *room));
    room->struct_size = sizeof *room;
    launch = room;
  }
  for (int i = 0; i < 3; ++i) {
    if (launch->grid[i] == 0 || launch->block[i] == 0) {
      *problem =
          "found a grid or block size of 0, wanted at least 1; skip the launch where there is "
          "nothing to do";
      return nullptr;
    }
  }
  if (launch->num_args != 0 && launch->args == nullptr) {
    *problem =
        "found args of NULL with num_args above 0, wanted the arguments' addresses; fill in args";
    return nullptr;
  }
  return launch;
}

}  // namespace opdock
