// SPDX-License-Identifier: Apache-2.0
#include "call/openmp.h"

#include <dlfcn.h>

#include <atomic>

#include "base/forked.h"
#include "base/loaded_objects.h"
#include "base/mutex.h"

namespace opdock {
namespace {

template <class Function>
bool look_up_symbol(const char* name, Function** function) {
  *function = reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
  return *function != nullptr;
}

// Returns how many objects this process has loaded so far, including the ones unloaded since.
unsigned long long count_loads() {
  unsigned long long loads = 0;
  visit_loaded_objects(
      [](dl_phdr_info* object, size_t, void* count) {
        *static_cast<unsigned long long*>(count) = object->dlpi_adds;
        return 1;
      },
      &loads);
  return loads;
}

std::atomic<const OpenMp*> the_runtime{nullptr};
// The number of loads at the last search that failed. Searching again is useless until it changes.
std::atomic<unsigned long long> loads_searched{0};

}  // namespace

const OpenMp* openmp() {
  if (forks() != 0) return nullptr;
  if (const OpenMp* found = the_runtime.load(std::memory_order_acquire)) return found;
  const unsigned long long loads = count_loads();
  if (loads_searched.load(std::memory_order_relaxed) == loads) return nullptr;
  OpenMp found;
  if (!look_up_symbol("GOMP_parallel", &found.parallel) ||
      !look_up_symbol("omp_get_max_threads", &found.max_threads) ||
      !look_up_symbol("omp_get_thread_num", &found.thread_number) ||
      !look_up_symbol("omp_get_num_threads", &found.num_threads) || began_as_fork()) {
    loads_searched.store(loads, std::memory_order_relaxed);
    return nullptr;
  }
  // The first thread initializes it; the others find the same functions.
  static const OpenMp table = found;
  the_runtime.store(&table, std::memory_order_release);
  return &table;
}

}  // namespace opdock
