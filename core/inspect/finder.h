// Native files, wheels and installed packages below folders.
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

// Walks folders; a file or folder that has been found before, under whatever name, is passed over.
// One thread.
class Finder {
 public:
  // What is below the folder `path` (absolute, plain), with links followed: appended to the lists,
  // each folder's entries in bytewise order, and what only links lead to behind all the rest.
  void walk(const std::string& path);
  // One file that somebody named: the same, if it is native.
  void add(const std::string& path);

  std::vector<std::string> natives;  // libraries by their names, and ELF files without extension
  std::vector<std::string> wheels;
  std::vector<std::string> sites;  // folders that packages are installed in
  std::vector<Skipped> skipped;
  uint64_t num_files = 0;  // looked at by name

 private:
  void visit(const std::string& folder, int depth);
  void take(const std::string& path);
  bool is_new(uint64_t device, uint64_t inode) { return seen_.emplace(device, inode).second; }

  std::set<std::pair<uint64_t, uint64_t>> seen_;
  std::vector<std::string> links_;  // to be followed
};

// The first kMagicBytes of a file, or fewer.
std::string first_bytes_of(const std::string& path);

}  // namespace opdock
