// Determines which host compilers an nvcc accepts.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/version.h"

namespace opdock {

struct HostLimits {
  uint32_t gcc = 0;    // the newest major accepted; 0: unknown
  uint32_t clang = 0;  // likewise
  std::string source;  // for people: the file, or NVIDIA's guide
};

// Reads nvcc's own check, in its include/crt/host_config.h, which every translation unit includes.
// `path` is only named as the source. Returns nullopt if the text has no such check.
std::optional<HostLimits> read_host_limits(std::string_view host_config, std::string path);

// Returns the documented limits, for use if that file cannot be read. Source: NVIDIA, "CUDA
// Installation Guide for Linux", Host Compiler Support Policy, of releases 11.0 to 13.0. Returns
// nullopt for other releases, which this table cannot know.
std::optional<HostLimits> documented_host_limits(const Version& toolkit);

}  // namespace opdock
