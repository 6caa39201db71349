// Finds an nvcc's toolkit and the library folders in it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace opdock {

// Returns the toolkit's folder as nvcc itself reports it, because `nvcc` may be a script that calls
// the real one. dryrun: what `nvcc --dryrun -c -x cu /dev/null` prints. Empty if that does not say.
std::string toolkit_of(std::string_view dryrun);

// Returns the existing folders of that toolkit that may have libraries for this machine, the
// likeliest first.
std::vector<std::string> library_folders(const std::string& toolkit);

}  // namespace opdock
