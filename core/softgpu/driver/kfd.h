// The files in which KFD describes AMD GPUs; facts about GPUs are read from them without HIP.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "config.h"

namespace softgpu {

// Writes FOLDER/sys/class/kfd/… and FOLDER/dev, in the form that OPDOCK_KFD=FOLDER expects. Throws
// std::filesystem::filesystem_error or std::runtime_error if that fails.
void write_kfd(const std::vector<Gpu>& gpus, const std::string& folder);

}  // namespace softgpu
