// A library in a process: it is there already, or it would be loaded with the file in question.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "link/search.h"

namespace opdock {

struct LinkNode {
  std::string path;                // empty: it is not in a file
  std::vector<std::string> names;  // the names by which it was needed, and its soname
  bool is_root = false, is_loaded = false, is_global = false;
  bool is_assumed = false;  // its symbols are unknown
  bool is_refused = false;  // it exists, but the loader refuses it
  Needer needer;
  // For a loaded library: read at the first use; NULL if it cannot be read.
  mutable std::shared_ptr<const Library> library;
  mutable std::once_flag once;

  bool is_called(const std::string& name) const {
    return std::find(names.begin(), names.end(), name) != names.end();
  }
  const Library* read(const Files& files) const {
    if (is_loaded && !path.empty()) {
      std::call_once(once, [&] { library = LibraryPool::shared().get(path, files); });
    }
    return library.get();
  }
};

}  // namespace opdock
