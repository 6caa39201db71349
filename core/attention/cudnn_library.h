// Finds cuDNN at run time and opens it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "attention/cudnn_api.h"
#include "base/reason.h"
#include "driver/driver.h"

namespace opdock::cudnn {

// Returns the functions of the library that the process has already loaded. If there is none, opens
// the first one that the driver supports among those in wheels, conda, CUDA_HOME and the system.
// OPDOCK_ATTENTION can name a library instead. Returns NULL and sets *why
// (attention-library-missing, attention-library-unfit) on failure. The first call decides for the
// whole process. Any thread; may block.
const Api* open_library(Driver* driver, Reason* why);

}  // namespace opdock::cudnn
