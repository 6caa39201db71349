// SPDX-License-Identifier: Apache-2.0
#include "base/mutex.h"

#include <pthread.h>

#include <atomic>

namespace opdock {
namespace {

std::mutex one_fork;                  // held from before_fork() to after_fork()
std::atomic<uint32_t> sections{0};    // number of threads between begin() and end()
std::atomic<uint32_t> is_forking{0};  // 1 while a fork is pending: new sections wait
std::atomic<uint32_t> number_of_forks{0};
thread_local uint32_t depth = 0;

void leave_section() {
  sections.fetch_sub(1);
  if (is_forking.load() != 0) sections.notify_all();
}

void before_fork() {
  one_fork.lock();
  is_forking.store(1);
  const uint32_t own = depth == 0 ? 0 : 1;
  for (uint32_t now = sections.load(); now != own; now = sections.load()) sections.wait(now);
}

void after_fork() {
  is_forking.store(0);
  is_forking.notify_all();
  one_fork.unlock();
}

void in_child() {
  number_of_forks.fetch_add(1);
  after_fork();
}

[[maybe_unused]] const int registered = pthread_atfork(before_fork, after_fork, in_child);

}  // namespace

void NoFork::begin() {
  if (depth++ != 0) return;
  for (;;) {
    sections.fetch_add(1);
    if (is_forking.load() == 0) return;
    leave_section();
    is_forking.wait(1);
  }
}

void NoFork::end() {
  if (--depth == 0) leave_section();
}

uint32_t forks() {
  return number_of_forks.load(std::memory_order_relaxed);
}

}  // namespace opdock
