// One library in a process: there already, or loaded with the file that is asked about.
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
  std::string path;                // empty: in no file
  std::vector<std::string> names;  // under which it was asked for, and its soname
  bool is_root = false, is_loaded = false, is_global = false;
  bool is_assumed = false;  // nobody knows its symbols
  bool is_refused = false;  // it is there, and the loader does not take it
  Needer needer;
  // Of a loaded one: read when first looked at; NULL if that cannot be done.
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
