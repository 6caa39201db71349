// Makes code objects for AMD's GPUs, compiled by hipRTC in separate processes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "pack/images.h"

namespace opdock::pack {

struct HipOptions {
  std::string archs;     // docs/reference/architectures.md; empty: no code objects
  bool none = false;     // no code objects, whatever `archs` says
  bool require = false;  // if there is no hipRTC, an error instead of a notice
  std::string worker;    // opdock-compile's path; empty: the installed one
};

// Sets the members of *request that code objects need. No hipRTC is set if no op is for ROCm, if
// nothing is asked for, or if none is found, which gives a notice on standard error. *depends gets
// the libraries, or the folders in which they may appear. Returns false, with errors, if the list
// is misspelt or hipRTC is missing and required.
bool find_hip_compilers(const HipOptions& options, ImageRequest* request,
                        std::vector<std::filesystem::path>* depends,
                        std::vector<std::string>* errors);

// Makes one code object for each of request.hip_archs, in their order, with the newest hipRTC that
// knows it. Errors name the architecture and the compilers that do not know it, or hold the
// compiler's messages.
std::vector<Image> make_hip_images(const ImageRequest& request, std::vector<std::string>* errors);

}  // namespace opdock::pack
