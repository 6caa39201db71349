/*
 * opdock/retain.h: arguments that are kept after the call, the extension "opdock.retain/1", in C11.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * Keeps the memory of an argument alive after run has returned, such as a buffer in asynchronous
 * I/O, or memory that another stream still reads.
 *
 *   struct job { const opdock_retain* table; opdock_retained* buffer; };
 *   // Called in run. If retain fails, it has written the error's text.
 *   static opdock_status keep(const opdock_call* call, const opdock_value* arg, struct job* job) {
 *     job->table = call->host->get_extension(OPDOCK_RETAIN_1);
 *     if (job->table != NULL) return job->table->retain(call, arg->as.tensor, &job->buffer);
 *     return call->host->set_error(call, OPDOCK_UNSUPPORTED, "this host has no " OPDOCK_RETAIN_1);
 *   }
 *   // Called on the thread that has done the I/O.
 *   static void finish(const struct job* job) { job->table->release(job->buffer); }
 *
 * In C++, Call::retain() of plugin.hpp does the same. Errors, threads, tags and ownership are those
 * of plugin.h.
 */
#ifndef OPDOCK_RETAIN_H_
#define OPDOCK_RETAIN_H_

#include "opdock/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define OPDOCK_RETAIN_1 "opdock.retain/1"

typedef struct opdock_retained opdock_retained; /* host-owned; one reference to an argument */

/* The table of the extension "opdock.retain/1". */
typedef struct opdock_retain {
  uint32_t struct_size;
  uint32_t reserved;
  /* [running]
   * Called in run of an op with OPDOCK_OP_RETAINS. Keeps the memory of `tensor`, which is an
   * argument of the call or an element of one, until *out is released. The tensor's shape and
   * strides are valid only during the call. OPDOCK_UNSUPPORTED if the program that makes the call
   * does not allow ops to keep arguments. */
  opdock_status (*retain)(const opdock_call* call, const opdock_tensor* tensor,
                          opdock_retained** out);
  /* [any thread]
   * Releases the memory; called once. Never waits for the program (an interpreter reclaims the
   * memory later). */
  void (*release)(opdock_retained* retained);
} opdock_retain;

#ifdef __cplusplus
}
#endif
#endif /* OPDOCK_RETAIN_H_ */
