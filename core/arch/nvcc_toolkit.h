// Where the toolkit of an nvcc is, and the libraries in it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace opdock {

// By the toolkit's own word, for nvcc may be a script that calls the real one. dryrun: what
// `nvcc --dryrun -c -x cu /dev/null` prints. Empty: it does not say.
std::string toolkit_of(std::string_view dryrun);

// The folders of that toolkit that are there and may have libraries for this machine, the likelier
// first.
std::vector<std::string> library_folders(const std::string& toolkit);

}  // namespace opdock
