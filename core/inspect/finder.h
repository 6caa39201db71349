// Finds native files, wheels and installed packages below folders.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/reason.h"
#include "inspect/wheel.h"

namespace opdock {

// Walks folders. A file or folder that has been found before, under whatever name, is skipped. One
// thread.
class Finder {
 public:
  // Appends what is below the folder `path` (absolute, plain) to the lists, and follows links. Each
  // folder's entries come in bytewise order; what only links lead to comes after all the rest.
  void walk(const std::string& path);
  // Adds one file that was named, if it is native.
  void add(const std::string& path);

  std::vector<std::string> natives;  // libraries by their names, and ELF files of other names
  std::vector<std::string> wheels;
  std::vector<std::string> sites;  // folders that packages are installed in
  std::vector<Skipped> skipped;
  uint64_t num_files = 0;  // files whose names were looked at

 private:
  void visit(const std::string& folder, int depth);
  void take(const std::string& path);
  bool is_new(uint64_t device, uint64_t inode) { return seen_.emplace(device, inode).second; }

  std::set<std::pair<uint64_t, uint64_t>> seen_;
  std::vector<std::string> links_;  // links still to be followed
};

// Returns the first kMagicBytes of a file, or fewer.
std::string first_bytes_of(const std::string& path);

}  // namespace opdock
