// Remembers in the cache where this machine's NVRTCs are, because the search for them asks for
// hundreds of files, and a kernel that is in the cache would wait for it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cache/cache.h"
#include "jit/nvrtc_files.h"

namespace opdock {

// A text with its name, for Cache::remember().
struct NvrtcMemo {
  std::string name, text;
};

// Returns what the other find_nvrtc_files() does: from the cache's memo if everything that decided
// the search is as it was, which *searched then does not get. Otherwise searches, and gives the
// memo of it to the cache; *memo gets it if the cache did not take it, as one that does not exist
// yet. cache: may be NULL.
std::vector<NvrtcFile> find_nvrtc_files(const std::vector<std::string>& folders,
                                        const Environment& environment, Cache* cache,
                                        std::vector<std::string>* searched, NvrtcMemo* memo);

// Returns everything of a process that decides where find_nvrtc_paths() searches, as one text.
std::string nvrtc_surroundings(const std::vector<std::string>& folders,
                               const Environment& environment);

// Returns the path if it exists, else the folder whose stamp changes when it appears. absolute.
std::string nearest_existing(std::string path);

}  // namespace opdock
