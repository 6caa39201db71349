// The files of a source plugin that a build takes: which, their contents, and copies of them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/reason.h"
#include "cache/stamps.h"

namespace opdock {

struct SourceFile {
  std::string name;    // relative to the plugin's folder, with '/'
  std::string sha256;  // of its contents; "unreadable" if it cannot be read
};

// Every file below `folder` in the order of their names, by the rule: all but hidden files, what
// Python and tests leave and are (__pycache__, *.pyc, conftest.py, test_*, bench_*, and folders
// named test, tests, bench or build), and links to folders. Reads every file.
// stamps, of this folder: what the list depends on is added; NULL: none.
std::vector<SourceFile> list_sources(const std::string& folder, Stamps* stamps = nullptr);

// Copies these files below `target`, which exists. `check` (NULL: none) gives the reason why a
// file, open for reading, must not be used. False and a reason if one cannot be read, written or
// used.
class Trust;
bool copy_sources(const std::string& folder, const std::vector<SourceFile>& files,
                  const std::string& target, Trust* trust, std::vector<Reason>* reasons);

}  // namespace opdock
