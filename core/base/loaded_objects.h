// Queries about the shared objects that are loaded into this process.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <link.h>

#include <string>
#include <string_view>

#include "base/mutex.h"

namespace opdock {

// Calls dl_iterate_phdr and keeps all threads from forking meanwhile: otherwise the lock that it
// takes would stay locked for ever in the child (seen with glibc 2.36). visit must not fork, load
// anything or wait for another thread.
inline int visit_loaded_objects(int (*visit)(dl_phdr_info*, size_t, void*), void* context) {
  const NoFork no_fork;
  return dl_iterate_phdr(visit, context);
}

// Returns the path of a loaded library whose file name starts with `beginning`, or "" if there is
// none.
inline std::string loaded_library(std::string_view beginning) {
  struct Search {
    std::string_view beginning;
    std::string path;
  } search{beginning, {}};
  visit_loaded_objects(
      [](dl_phdr_info* object, size_t, void* context) {
        auto* const found = static_cast<Search*>(context);
        const std::string_view path = object->dlpi_name == nullptr ? "" : object->dlpi_name;
        if (!path.substr(path.rfind('/') + 1).starts_with(found->beginning)) return 0;
        found->path = path;
        return 1;
      },
      &search);
  return search.path;
}

}  // namespace opdock
