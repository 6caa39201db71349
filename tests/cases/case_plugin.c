/* A C plugin in which a test case can set every detail; tests/cases/meson.build lists the cases.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "opdock/plugin.h"

#define MAYBE_UNUSED __attribute__((unused)) /* a case may leave the function unused */

#ifdef CALLS
#include <stdlib.h>
/* Calls a function of the program, whose address is in OPDOCK_CASE_CALLS. */
static void call_program(void) {
  const char* address = getenv("OPDOCK_CASE_CALLS");
  if (address != NULL) ((void (*)(void))strtoull(address, NULL, 0))();
}
#endif
#ifdef WAITS
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>
/* Creates one file to report that it has started, then waits until another file exists. */
static void wait_for_go(void) {
  fclose(fopen(getenv("OPDOCK_CASE_BEGUN"), "w"));
  while (access(getenv("OPDOCK_CASE_GO"), F_OK) != 0) sched_yield();
}
#endif

#ifndef VERSION
#define VERSION "1.0"
#endif
#ifndef ABI_MAJOR
#define ABI_MAJOR OPDOCK_ABI_MAJOR
#endif
#ifndef ABI_MINOR
#define ABI_MINOR OPDOCK_ABI_MINOR
#endif
#ifndef PLUGIN_SIZE
#define PLUGIN_SIZE sizeof(opdock_plugin)
#endif
#ifndef OP_SIZE
#define OP_SIZE sizeof(opdock_op)
#endif
#ifndef NUM_OPS
#define NUM_OPS 1
#endif
#ifndef FLAGS
#define FLAGS OPDOCK_OP_THREAD_SAFE
#endif
#ifndef SCHEMA
#define SCHEMA NAME "(Tensor x) -> Tensor"
#endif
#ifndef DOC
#define DOC "Does nothing."
#endif
#ifndef SHAPE_RULES
#define SHAPE_RULES shape_rules
#endif
#ifndef NUM_SHAPE_RULES
#define NUM_SHAPE_RULES 1
#endif
#ifndef SHAPE_RULE
#define SHAPE_RULE "like x"
#endif
#ifdef GRADIENT
static const char* const gradients[] = {GRADIENT};
#define GRADIENTS gradients
#define NUM_GRADIENTS 1
#else
#define GRADIENTS NULL
#define NUM_GRADIENTS 0
#endif
#ifndef PLAN
#define PLAN plan
#endif
#ifndef RUN
#define RUN run
#endif
#ifndef OP
#define OP &op
#endif
#ifndef OPS
#define OPS ops
#endif
#ifndef INIT
#define INIT init
#endif
#ifndef ENTRY_RESULT
#define ENTRY_RESULT &plugin
#endif
#ifndef PLUGIN_NAME
#define PLUGIN_NAME NAME
#endif

MAYBE_UNUSED static opdock_status plan(const opdock_call* call, const opdock_value* args,
                                       uint32_t num_args, opdock_plan* out) {
  (void)call, (void)num_args;
  const opdock_tensor* x = args[0].as.tensor;
  out->outputs[0].dtype = x->dtype;
  out->outputs[0].ndim = x->ndim;
  for (int32_t i = 0; i < x->ndim; ++i) out->outputs[0].shape[i] = x->shape[i];
  return OPDOCK_OK;
}

MAYBE_UNUSED static opdock_status run(const opdock_call* call, const opdock_value* args,
                                      uint32_t num_args, opdock_value* results,
                                      uint32_t num_results) {
  (void)call, (void)args, (void)num_args, (void)results, (void)num_results;
#ifdef IN_RUN
  IN_RUN;
#endif
  return OPDOCK_OK;
}

/* Logs the plugin's name, so that tests can count the calls of init. */
MAYBE_UNUSED static opdock_status init(const opdock_host* host, char* error, uint32_t error_size) {
  host->log(NULL, 2, PLUGIN_NAME);
#ifdef IN_INIT
  IN_INIT;
#endif
#ifdef INIT_FULL
  memset(error, 'x', error_size); /* a text without a terminating NUL */
#elif defined(INIT_STATUS)
  snprintf(error, error_size, "this plugin is out of order");
#else
  (void)error, (void)error_size;
#endif
#ifdef INIT_STATUS
  return INIT_STATUS;
#else
  return OPDOCK_OK;
#endif
}

MAYBE_UNUSED static const char* const shape_rules[] = {SHAPE_RULE, SHAPE_RULE};

MAYBE_UNUSED static const opdock_op op = {
    .struct_size = OP_SIZE,
    .flags = FLAGS,
    .schema = SCHEMA,
    .doc = DOC,
    .device_arg = 0,
    .num_shape_rules = NUM_SHAPE_RULES,
    .shape_rules = SHAPE_RULES,
    .gradients = GRADIENTS,
    .num_gradients = NUM_GRADIENTS,
    .plan = PLAN,
    .run = RUN,
};

MAYBE_UNUSED static const opdock_op* const ops[] = {OP, OP};

MAYBE_UNUSED static const opdock_plugin plugin = {
    .struct_size = PLUGIN_SIZE,
    .abi_major = ABI_MAJOR,
    .abi_minor = ABI_MINOR,
    .num_ops = NUM_OPS,
    .name = PLUGIN_NAME,
    .version = VERSION,
    .ops = OPS,
    .init = INIT,
};

#ifdef CONSTRUCTOR
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
__attribute__((constructor)) static void construct(void) {
  CONSTRUCTOR;
}
#endif

#ifdef WANTS_SYMBOL
#ifndef LACKS
#define LACKS opdock_case_no_such_function
#endif
extern int LACKS(void);
int opdock_case_call(void) {
  return LACKS();
}
#endif

#ifdef HIDE_ENTRY
MAYBE_UNUSED static const opdock_plugin* entry(void) {
#else
const opdock_plugin* OPDOCK_ENTRY(void) {
#endif
  return ENTRY_RESULT;
}
