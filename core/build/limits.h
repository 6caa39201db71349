// The limits of this process (ulimit) that a build's tools inherit, and what hitting one looks
// like.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/reason.h"
#include "build/process.h"

namespace opdock {

struct ToolLimits {
  uint64_t file_bytes = UINT64_MAX;   // of a file that is written
  uint64_t stack_bytes = UINT64_MAX;  // of a program's stack
};

ToolLimits own_limits();

// build-limit if a program that ended so, and printed `log`, was stopped by a limit. error: what
// the reason gives as found.
std::optional<Reason> hit_limit(const ToolLimits& limits, const ProcessEnd& end,
                                std::string_view log, const std::string& error);

// build-disk-full where the file system of `folder` has next to no room left: a program that could
// not write there does not always say so. error: as above.
std::optional<Reason> full_disk(const std::string& folder, const std::string& error);

// A file of the build's own could not be written, for errno `error`: build-disk-full, build-limit,
// or what else `otherwise` is.
Reason cannot_write(const std::string& path, int error, Code otherwise, std::string wanted);

}  // namespace opdock
