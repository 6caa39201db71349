// Opens a shared object in such a way that the file that was checked is the one that is mapped.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/reason.h"
#include "discover/catalog.h"

namespace opdock {

// Calls dlopen(RTLD_NOW | RTLD_LOCAL) for the candidate's file. On failure returns NULL and appends
// reasons (file-changed, load-failed). Runs the object's constructors.
//
// The file is opened, compared with the one that was checked, and loaded through that descriptor.
// So no code of another file runs, whatever the path leads to by then. Only an object that needs
// libraries relative to $ORIGIN is loaded by its path; then the path is compared again afterwards.
//
// glibc identifies a loaded object by every spelling of its path that was used, and by device and
// inode. A file that replaced a loaded one by rename has a new inode, so only the spelling could
// return the old object. Therefore the path gets a new spelling, with "./" and ".//" before the
// file's name.
void* open_candidate(const Candidate& candidate, std::vector<Reason>* reasons);

// Records what a file lacked when the loader refused it, and tells whether that may be available
// now: a library that was not found, or a symbol, if other objects were loaded or made global
// since. The loader runs no code of a file that it refuses, so another attempt does no harm.
class MissingDependency {
 public:
  MissingDependency() = default;  // lacks nothing: another attempt would fail in the same way
  explicit MissingDependency(const std::vector<Reason>& reasons);
  bool may_be_available() const;

 private:
  bool is_something_ = false, is_file_ = false;
  std::string symbol_;
  uint64_t objects_ = 0;  // a digest of the objects that were in this process
};

// overwritten_files returns a reason for each file that is loaded in this process and was
// overwritten in place since then: memory has parts of both contents. It only examines the files.
// opened_files returns how many files were loaded.
std::vector<Reason> overwritten_files();
size_t opened_files();

// Translates a text of dlerror into a reason.
Reason loader_reason(const std::string& message, const std::string& path);

}  // namespace opdock
