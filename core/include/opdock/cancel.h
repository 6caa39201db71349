/*
 * opdock/cancel.h: whether the program wants a waiting call to end, the extension
 * "opdock.cancel/1", in C11.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 *   // Called in run. Waits until `file` can be read; poll() is declared in <poll.h>.
 *   static opdock_status wait_for(const opdock_call* call, int file) {
 *     const opdock_cancel* table = call->host->get_extension(OPDOCK_CANCEL_1);
 *     struct pollfd wanted = {file, POLLIN, 0};
 *     while (poll(&wanted, 1, 50) <= 0) {
 *       if (table != NULL && table->is_cancelled(call) != 0)
 *         return call->host->set_error(call, OPDOCK_CANCELLED, "the program asked to stop");
 *     }
 *     return OPDOCK_OK;
 *   }
 *
 * In C++, Call::is_cancelled() of plugin.hpp does the same. Threads and tags are those of plugin.h.
 */
#ifndef OPDOCK_CANCEL_H_
#define OPDOCK_CANCEL_H_

#include "opdock/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define OPDOCK_CANCEL_1 "opdock.cancel/1"

/* The table of the extension "opdock.cancel/1". */
typedef struct opdock_cancel {
  uint32_t struct_size;
  uint32_t reserved;
  /* [running]
   * Returns nonzero if the program wants the call to end, as after Ctrl-C
   * (opdock_options.cancelled). While it waits, run of an op with OPDOCK_OP_MAY_BLOCK asks about
   * every 50 ms, on the thread of the call and with no lock held, because the program's own code
   * runs here; then it returns OPDOCK_CANCELLED. Work that the call has begun may go on if it no
   * longer needs the arguments. */
  int32_t (*is_cancelled)(const opdock_call* call);
} opdock_cancel;

#ifdef __cplusplus
}
#endif
#endif /* OPDOCK_CANCEL_H_ */
