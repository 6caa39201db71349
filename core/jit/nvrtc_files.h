// Finds the NVRTC libraries of this machine by their files: opening one costs tens of milliseconds,
// and an image that is in the cache needs none.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/version.h"
#include "facts/environment.h"

namespace opdock {

struct NvrtcFile {
  std::string path;     // absolute
  Version version;      // 12.9, if file names tell it
  std::string id;       // the ELF build-id or, without one, the size, in hexadecimal
  std::string include;  // the toolkit's headers that belong to it; empty: not installed
};

// Returns the paths of nvrtc_candidates(), each library once; a bare name is replaced by what the
// loader finds for it. *tested (unless NULL) is as for nvrtc_candidates(), with the files and
// folders that the loader looks at.
std::vector<std::string> find_nvrtc_paths(const std::vector<std::string>& folders,
                                          const Environment& environment,
                                          std::vector<std::string>* searched,
                                          std::vector<std::string>* tested = nullptr);
// Returns one file per library, the newest first. `folders` are searched first, as by
// nvrtc_candidates(). *searched gets the folders, for messages; *tested (unless NULL) each file and
// folder whose state decided the result. Reads folders and file heads; opens no library.
std::vector<NvrtcFile> find_nvrtc_files(const std::vector<std::string>& folders,
                                        const Environment& environment,
                                        std::vector<std::string>* searched,
                                        std::vector<std::string>* tested = nullptr);

// Folders that this process searches for run-time compilers before all others, such as the
// site-packages of a Python that is not the first in PATH. Thread-safe.
void add_compiler_folder(const std::string& folder);
std::vector<std::string> compiler_folders();

// Returns why the file at `path` must not be handed to the dynamic loader; empty if it may. A file
// that ends before its segments do would kill the process.
std::string library_problem(const std::string& path);

// Returns what distinguishes one build of a library from another: its ELF build-id, or its size.
std::string library_id(const std::string& path);

}  // namespace opdock
