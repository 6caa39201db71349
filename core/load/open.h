// Opening a shared object so that the file that was checked is the one that gets mapped.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/reason.h"
#include "discover/catalog.h"

namespace opdock {

// dlopen(RTLD_NOW | RTLD_LOCAL) of the candidate's file. NULL and reasons (file-changed,
// load-failed) on failure. Runs the object's constructors.
//
// The file is opened, compared with what was checked, and loaded by that descriptor, so that
// nothing of another file runs, whatever the path leads to by then. Only an object that asks for
// libraries relative to $ORIGIN is loaded by its path, which is compared again afterwards.
//
// glibc knows a loaded object by every spelling of its path that was used, and by device and inode.
// A file that replaced a loaded one by rename has a new inode, so only the spelling can bring back
// the old object: then the path is spelled anew, with "./" and ".//" before the file's name.
void* open_candidate(const Candidate& candidate, std::vector<Reason>* reasons);

// What a file lacked that the loader refused, and whether it may be there by now: a library that
// was not found, or, as other objects were loaded or made global since, a symbol. The loader runs
// nothing of a file that it refuses, so asking again does no harm.
class Lacking {
 public:
  Lacking() = default;  // nothing: asking again would meet the same
  explicit Lacking(const std::vector<Reason>& reasons);
  bool may_be_there() const;

 private:
  bool is_something_ = false, is_file_ = false;
  std::string symbol_;
  uint64_t objects_ = 0;  // that were in this process
};

// The files that are loaded in this process and have been overwritten in place since, by path: it
// has parts of both contents in memory. Looks at the files alone. And how many are loaded.
std::vector<Reason> overwritten_files();
size_t opened_files();

// The reason behind a text of dlerror.
Reason loader_reason(const std::string& message, const std::string& path);

}  // namespace opdock
