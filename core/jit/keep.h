// OPDOCK_JIT_KEEP=DIR: keeps what was compiled next to a digest of the image that came of it, for
// debuggers, for people, and for the software GPU, which executes the source instead of the image.
//
//   DIR/<sha256 of the image>.json  {"backend", "arch", "source": the source's digest,
//                                    "kernels": {name in the image: name expression}}
//   DIR/source-<digest>.json        {"program", "program_name", "headers": {name: text},
//                                    "options": [], "kernels": []}
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/reason.h"
#include "jit/compiler.h"

namespace opdock {

// Returns the folder that the environment names; empty if nothing is to be kept, as in every
// privileged program.
std::string keep_folder();

// Returns a hexadecimal digest of everything that decides what the source means, in an order of its
// own: the same source has the same digest whichever architecture, compiler or program asked for
// it.
std::string source_digest(const CompileRequest& request);

// Writes both files into `folder`, which is made if necessary. Each is written whole or not at all,
// and replaces what another compilation left there. image: its bytes; PTX with or without the NUL
// at its end. names: pairs of a kernel's name expression and its name in the image. A file that
// cannot be written gives a notice (jit-keep). Any thread and process.
void keep_source(const std::string& folder, const CompileRequest& request, ImageKind kind,
                 std::span<const uint8_t> image,
                 const std::vector<std::pair<std::string, std::string>>& names,
                 std::vector<Reason>* reasons);

}  // namespace opdock
