// What a file is that is no ELF file, as far as its first bytes show it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "note/reader.h"

namespace opdock {

struct FileKind {
  std::string found;   // "a static archive (ar)", "a Windows DLL (PE, x86-64)"
  std::string advice;  // what to do about it; empty where there is nothing special to say
};

// Of a file of one byte at least that does not begin as ELF files do. A few small reads.
FileKind file_kind(FileReader* reader);

}  // namespace opdock
