// Decides a build's architectures from the command line, environment, configuration and machine.
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

// Replaces options->cuda_archs and hip_archs, which hold the command line's lists (or nothing), by
// the lists to request. The order of docs/reference/architectures.md decides, and only the devices
// that the plugin's ops have count. No compiler is started, so a machine without one comes to the
// same request. If nothing decides, `ahead_of_time` requests the compiler's default and a first use
// requests no images; of a plugin that has only formulas, the former requests none either, and a
// first use never does. Sets the lists' origins and gpu_archs and, ahead of time, must_run_here if
// GPUs of this machine decide. Returns false and a reason for a list that cannot be read or used.
// Notices (arch-uncovered) are appended to `reasons` too.
bool decide_archs(const Manifest& manifest, const ArchSettings& settings,
                  const MachineFacts& machine, bool ahead_of_time, BuildOptions* options,
                  std::vector<Reason>* reasons);

}  // namespace opdock
