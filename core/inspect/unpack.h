// Unpacks a member of an archive into a file of its own, which has no name.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "base/fd.h"
#include "inspect/zip.h"

namespace opdock {

// Unpacks into an unnamed file in $TMPDIR, else in /tmp, or into memory if file systems there have
// no unnamed files. The file is gone when it is closed. Returns nullopt and sets *problem if the
// member is bad or there is no place for it.
std::optional<Fd> unpack_member(const Zip& zip, const ZipEntry& entry, std::string* problem);

}  // namespace opdock
