// The files in which KFD describes AMD GPUs, for facts that are probed without HIP.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "config.h"

namespace softgpu {

// Writes FOLDER/sys/class/kfd/… and FOLDER/dev, as OPDOCK_KFD=FOLDER wants them. Throws
// std::filesystem::filesystem_error or std::runtime_error where they cannot be written.
void write_kfd(const std::vector<Gpu>& gpus, const std::string& folder);

}  // namespace softgpu
