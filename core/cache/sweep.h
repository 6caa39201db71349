// Removes what is too old to keep: temporary files of dead processes, locks, records of failed
// builds, of builds and of compilers, and bad entries. sweep.cc says how long each stays.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "cache/layout.h"

namespace opdock::cache {

constexpr int64_t kMinute = 60, kHour = 60 * kMinute, kDay = 24 * kHour;  // seconds

// Returns how many were removed. now: by the file system's clock, seconds since 1970.
size_t sweep(const Layout& layout, int64_t now);

// Returns when the file was last modified, or 0 if there is none.
int64_t modified(const std::string& path);

// Returns whether `time` is more than `seconds` ago. A time in the future counts as old: it comes
// from a clock that was wrong, and says as little as one long ago.
bool is_older(int64_t time, int64_t seconds, int64_t now);

}  // namespace opdock::cache
