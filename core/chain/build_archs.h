// The architectures of a build, decided from everything that may say so.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "build/builder.h"
#include "facts/machine.h"
#include "manifest/manifest.h"

namespace opdock {

struct ArchSettings {
  std::string cuda, cuda_place;  // the configuration's lists and where they stand; may be empty
  std::string hip, hip_place;
};

// Replaces options->cuda_archs and hip_archs, which hold what the command line said (or nothing),
// by the request's lists: by the order of docs/architectures.md, for the devices that the plugin's
// ops have. No compiler is started, so that a machine without one comes to the same request. Where
// nothing decides, `ahead_of_time` takes the compiler's default and a first use no images. Sets the
// lists' origins and gpu_archs, and ahead of time must_run_here where GPUs of this machine decide.
// False and a reason for a list that cannot be read or used; notices (arch-uncovered) are appended
// too.
bool decide_archs(const Manifest& manifest, const ArchSettings& settings,
                  const MachineFacts& machine, bool ahead_of_time, BuildOptions* options,
                  std::vector<Reason>* reasons);

}  // namespace opdock
