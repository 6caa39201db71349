// A table of verdicts, one row per line: the file, the machine, and the expected verdict.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <iosfwd>
#include <string>

#include "compat/verdict.h"

namespace opdock::test {

// A row's texts are words separated by blanks.
//
// file      cpu cuda rocm         devices that the note claims
//           sm_80@12.9            an image and the toolkit that made it; without @: unknown
//           compute_80@12.9  gfx90a:xnack-@6.2  source  rocm-source
//           torch>=2.11,<3        a declared library; plain "cudart": any version
//           level=3 arch=aarch64 machine=183 abi=1.0
//           missing=libfoo.so.1   a library that the loader would not find; likewise refused=
//                                 elsewhere= unknown=, and no-open for the file itself
//           absent:GLIBC_2.99     a symbol version that its library lacks
//           symbol=foo            a symbol that nothing defines; unmarked property=3
//           tls=100 tls-left=1680 tls-align=128
//           execstack static-tls unique unresolved no-note not-elf
//           =elf-truncated        a reason that the file's reader gave
// machine   x86-64-v3 by default
//           driver=12.2 rocm=6.2  sm_86  tegra:sm_87  gfx90a:sramecc+:xnack-  (GPUs, in order)
//           order?                the order of the GPUs is uncertain
//           level=2 aarch64 torch=2.13.0
// wanted    usable | undecided | rejected, every reason's code, and the image of the first GPU
//           that has one: "usable sm_80 ptx-only"
struct Row {
  int line;
  std::string file, machine, wanted;
};
std::ostream& operator<<(std::ostream& out, const Row& row);

FileFacts file_from(const std::string& words);
MachineFacts machine_from(const std::string& words);
// Returns the verdict in the form of `wanted`: state, image, codes in the order of
// reason_codes.def.
std::string describe(const FileFacts& file, const Verdict& verdict);
// Returns `wanted` with its words in that order.
std::string normalise(const std::string& wanted);

class VerdictTable : public testing::TestWithParam<Row> {};

}  // namespace opdock::test

#define ROW(file, machine, wanted)  \
  opdock::test::Row {               \
    __LINE__, file, machine, wanted \
  }
