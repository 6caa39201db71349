// Reads the limits of this process (ulimit), which a build's tools inherit, and recognises a tool
// that was stopped by one.
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
  uint64_t file_bytes = UINT64_MAX;   // size of a file that is written
  uint64_t stack_bytes = UINT64_MAX;  // size of a program's stack
};

ToolLimits own_limits();

// Returns build-limit if a limit stopped a program that ended as `end` says and printed `log`.
// error: becomes the reason's `found`.
std::optional<Reason> hit_limit(const ToolLimits& limits, const ProcessEnd& end,
                                std::string_view log, const std::string& error);

// Returns build-disk-full if the file system of `folder` has almost no room left: a program that
// could not write there does not always say so. error: becomes the reason's `found`.
std::optional<Reason> full_disk(const std::string& folder, const std::string& error);

// Returns the reason why one of the build's own files could not be written, for errno `error`:
// build-disk-full, build-limit, or else `otherwise`.
Reason cannot_write(const std::string& path, int error, Code otherwise, std::string wanted);

}  // namespace opdock
