// What is loaded into this process.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <link.h>

#include <string>
#include <string_view>

#include "base/mutex.h"

namespace opdock {

// dl_iterate_phdr, during which no thread forks: in a child glibc (seen with 2.36) would leave the
// lock that it takes held for ever. visit: must not fork, load anything or wait for another thread.
inline int visit_loaded_objects(int (*visit)(dl_phdr_info*, size_t, void*), void* context) {
  const NoFork whole;
  return dl_iterate_phdr(visit, context);
}

// The path of a loaded library whose file's name begins so; empty: there is none.
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
