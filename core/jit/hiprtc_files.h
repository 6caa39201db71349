// Finds the hipRTC libraries of this machine by their files. None is opened in this process.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/version.h"
#include "facts/environment.h"

namespace opdock {

struct HiprtcFile {
  std::string path;  // absolute
  Version version;   // 5.2, from the file's name
  std::string id;    // as in NvrtcFile
};

// Returns the libraries, the newest first: in $ROCM_PATH, /opt/rocm, /opt/rocm-*, and where the
// loader looks. Up to ROCm 5 hipRTC is a part of libamdhip64.so.5. *searched gets the folders, for
// messages.
std::vector<HiprtcFile> find_hiprtc_files(const Environment& environment,
                                          std::vector<std::string>* searched);

}  // namespace opdock
