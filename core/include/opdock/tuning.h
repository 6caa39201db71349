/*
 * opdock/tuning.h: the measured choice of a launch, the extension "opdock.tuning/1", in C11.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * Says which of several ways to launch an op was measured to be the fastest on the device of the
 * call, by `opdock bench --tune` (docs/guide/tuning.md).
 *
 *   // Returns how many elements each thread of the kernel computes for rows of this length.
 *   static uint32_t elements_per_thread(const opdock_call* call, uint32_t length) {
 *     static const uint32_t ways[] = {1, 2, 4, 8};
 *     const uint64_t question = UINT64_C(1) << 32 | length;  // 1: this op
 *     const opdock_tuning* table = call->host->get_extension(OPDOCK_TUNING_1);
 *     const int32_t best = table == NULL ? -1 : table->choice(call, question, 4);
 *     if (best >= 0) return ways[best];
 *     return length < 4096 ? 1 : 4;  // nothing was measured
 *   }
 *
 * In C++, Plan::tuned() and Call::tuned() of plugin.hpp do the same. Threads and tags are those of
 * plugin.h.
 */
#ifndef OPDOCK_TUNING_H_
#define OPDOCK_TUNING_H_

#include "opdock/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define OPDOCK_TUNING_1 "opdock.tuning/1"

/* The table of the extension "opdock.tuning/1". */
typedef struct opdock_tuning {
  uint32_t struct_size;
  uint32_t reserved;
  /* [planning, preparing, running]
   * Returns the fastest of the ways 0 to count - 1, or -1 if none was measured: then the plugin
   * decides. question: a number that the plugin chooses to identify the situation (the op, the
   * dtype, the length of a row, …), the same in every build. While ways are being measured, returns
   * the way to try: a call that cannot be made in that way fails with the reason, or is made in
   * another way. May be called in any phase; the answer in run may differ from the answer in plan.
   * Takes a few nanoseconds, no lock and no allocation, except while ways are being measured. */
  int32_t (*choice)(const opdock_call* call, uint64_t question, uint32_t count);
} opdock_tuning;

#ifdef __cplusplus
}
#endif
#endif /* OPDOCK_TUNING_H_ */
