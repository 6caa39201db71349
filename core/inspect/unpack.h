// A member of an archive as a file of its own, which has no name.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "base/fd.h"
#include "inspect/zip.h"

namespace opdock {

// Unpacks into an unnamed file in $TMPDIR, else /tmp; where file systems there have none, into
// memory. It is gone when it is closed. nullopt and *problem if the member or the place will not
// do.
std::optional<Fd> unpack_member(const Zip& zip, const ZipEntry& entry, std::string* problem);

}  // namespace opdock
