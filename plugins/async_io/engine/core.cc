// SPDX-License-Identifier: Apache-2.0
#include "core.h"

#include "worker.h"

namespace async_io {

Core::Core(const Options& options_in_effect, Rings made)
    : options(options_in_effect), made_after_forks(forks()), rings(std::move(made)) {
  for (uint32_t i = 0; i < options.num_threads; ++i)
    workers.push_back(
        std::make_unique<Worker>(this, rings.rings.empty() ? nullptr : rings.rings[i].get()));
  threads.reserve(options.num_threads);
}

Core::~Core() {
  if (!is_parents()) return;
  for (const std::unique_ptr<Ring>& ring : rings.rings) ring->leave_to_parent();
}

void Core::push_front(Job* job) {
  job->next_in_queue = first;
  first = job;
  if (last == nullptr) last = job;
}

void Core::push_back(Job* job) {
  job->next_in_queue = nullptr;
  (last != nullptr ? last->next_in_queue : first) = job;
  last = job;
}

void Core::remove(Job* job) {
  Job* before = nullptr;
  for (Job* at = first; at != nullptr; before = at, at = at->next_in_queue) {
    if (at != job) continue;
    (before != nullptr ? before->next_in_queue : first) = job->next_in_queue;
    if (last == job) last = before;
    return;
  }
}

}  // namespace async_io
