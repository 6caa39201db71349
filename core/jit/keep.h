// OPDOCK_JIT_KEEP=DIR: what was compiled is kept beside a digest of the image that came of it, for
// debuggers, for people, and for the software GPU, which executes the source in the image's place.
//
//   DIR/<sha256 of the image>.json  {"backend", "arch", "source": the source's digest}
//   DIR/source-<digest>.json        {"program", "program_name", "headers": {name: text},
//                                    "options": [], "kernels": []}
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/reason.h"
#include "jit/compiler.h"

namespace opdock {

// The folder that the environment names; empty: nothing is kept. In a privileged program: nothing.
std::string keep_folder();

// Hexadecimal; over everything that decides what the source means, in an order of its own: the same
// source has the same digest whichever architecture, compiler or program asked for it.
std::string source_digest(const CompileRequest& request);

// Writes both files into `folder`, which is made if need be, each whole or not at all, and replaces
// what another compilation left there. image: its bytes; of PTX with or without the NUL at its end.
// What cannot be written is a notice (jit-keep). Any thread and process.
void keep_source(const std::string& folder, const CompileRequest& request, ImageKind kind,
                 std::span<const uint8_t> image, std::vector<Reason>* reasons);

}  // namespace opdock
