// What is loaded into this process.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <link.h>

#include "base/mutex.h"

namespace opdock {

// dl_iterate_phdr, during which no thread forks: in a child glibc (seen with 2.36) would leave the
// lock that it takes held for ever. visit: must not fork, load anything or wait for another thread.
inline int visit_loaded_objects(int (*visit)(dl_phdr_info*, size_t, void*), void* context) {
  const NoFork whole;
  return dl_iterate_phdr(visit, context);
}

}  // namespace opdock
