// Code objects for AMD's GPUs, compiled by hipRTC in processes of their own.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "pack/images.h"

namespace opdock::pack {

struct HipOptions {
  std::string archs;     // docs/architectures.md; empty: no code objects
  bool none = false;     // whatever `archs` says
  bool require = false;  // an error instead of a notice where there is no hipRTC
  std::string worker;    // opdock-compile's path; empty: the installed one
};

// Sets the members of *request that code objects take: none where no op is for ROCm, nothing is
// asked for or no hipRTC is found, of which a notice goes to standard error. *depends gets the
// libraries, or the folders in which they may appear. False, with errors, if the list is misspelt
// or hipRTC is missing and required.
bool find_hip_compilers(const HipOptions& options, ImageRequest* request,
                        std::vector<std::filesystem::path>* depends,
                        std::vector<std::string>* errors);

// One code object for each of request.hip_archs, in their order, by the newest hipRTC that knows
// it. Errors name the architecture and the compilers that do not know it, or hold the compiler's
// messages.
std::vector<Image> make_hip_images(const ImageRequest& request, std::vector<std::string>* errors);

}  // namespace opdock::pack
