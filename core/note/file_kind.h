// Describes a file that is not ELF by its first bytes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "note/reader.h"

namespace opdock {

struct FileKind {
  std::string found;   // "a static archive (ar)", "a Windows DLL (PE, x86-64)"
  std::string advice;  // what the user should do; empty if there is nothing special to say
};

// Describes a file of at least one byte that does not begin with the ELF magic. Does a few small
// reads.
FileKind file_kind(FileReader* reader);

}  // namespace opdock
