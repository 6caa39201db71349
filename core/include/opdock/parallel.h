/*
 * opdock/parallel.h: the host's threads for CPU ops, the extension "opdock.parallel/2", in C11.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 *   static void double_range(void* context, uint64_t begin, uint64_t end) {
 *     float* x = context;
 *     for (uint64_t i = begin; i < end; ++i) x[i] *= 2;
 *   }
 *   // Called in run.
 *   static void double_all(const opdock_call* call, float* x, uint64_t count) {
 *     const opdock_parallel* table = call->host->get_extension(OPDOCK_PARALLEL_2);
 *     if (table != NULL) table->parallel_for(call, count, 16384, double_range, x);
 *     else double_range(x, 0, count);
 *   }
 *
 * In C++, Call::parallel_for() of plugin.hpp does the same. Threads and tags are those of plugin.h.
 */
#ifndef OPDOCK_PARALLEL_H_
#define OPDOCK_PARALLEL_H_

#include "opdock/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define OPDOCK_PARALLEL_2 "opdock.parallel/2"

/* The table of the extension "opdock.parallel/2". */
typedef struct opdock_parallel {
  uint32_t struct_size;
  uint32_t reserved;
  /* [planning, preparing, running]
   * Calls body(context, begin, end) on disjoint ranges that together are [0, count), each of at
   * least `grain` items except the last. Runs on this thread and on as many of the host's workers
   * as the runtime that makes the call has, and returns when all ranges are done (it blocks). body
   * must not throw. body may call parallel_for again: such a nested call runs only on the thread
   * that makes it. */
  void (*parallel_for)(const opdock_call* call, uint64_t count, uint64_t grain,
                       void (*body)(void* context, uint64_t begin, uint64_t end), void* context);
} opdock_parallel;

#ifdef __cplusplus
}
#endif
#endif /* OPDOCK_PARALLEL_H_ */
