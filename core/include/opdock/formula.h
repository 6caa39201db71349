/*
 * opdock/formula.h: functions that are made of formulas while a program runs.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 *   opdock_function* rms_norm = NULL;
 *   opdock_make_function(runtime,
 *                        "rms_norm(Tensor x, Tensor? weight=None, *, float eps=1e-5) -> Tensor",
 *                        "y = x * rsqrt(mean(x * x) + eps)\n"
 *                        "return y * weight if weight else y",
 *                        &rms_norm, error, sizeof error);
 *
 * The function is called like that of an op of a plugin (opdock.h), on the CPU and on GPUs, for
 * which its kernels are compiled when a call first needs them. docs/reference/formulas.md has the
 * language.
 */
#ifndef OPDOCK_FORMULA_H_
#define OPDOCK_FORMULA_H_

#include "opdock/opdock.h"

#ifdef __cplusplus
extern "C" {
#endif

/* [any thread]
 * Makes a function of a formula. schema: its parameters (Tensor, float, int, bool, str, and the
 * optional ones of these) and its results (Tensor, or Tensor(a!) for one that is written into a
 * parameter); NULL: the names that the formula uses are tensors, in the order of their first use.
 * The same texts give the same function, which lives as long as the runtime. Compiles nothing.
 * OPDOCK_INVALID_ARGUMENT: a text is faulty; the error names the line and the column. */
OPDOCK_EXPORT opdock_status opdock_make_function(opdock_runtime* runtime, const char* schema,
                                                 const char* formula, opdock_function** out,
                                                 char* error, uint32_t error_size);

/* [any thread]
 * Makes the function of the gradients of a formula's parameters, from the same texts. params: names
 * of tensor parameters, separated by commas. The function takes first the gradient of each result
 * (if the result has one number a row, also with 1 as the last dimension), then what the formula
 * takes, and returns the gradients in the order of the parameters. A gradient has the shape and the
 * dtype of its parameter: it is summed over the dimensions in which the parameter was broadcast, in
 * an order that depends only on the shapes. Errors and lifetime: as for opdock_make_function. */
OPDOCK_EXPORT opdock_status opdock_make_gradient(opdock_runtime* runtime, const char* schema,
                                                 const char* formula, const char* params,
                                                 opdock_function** out, char* error,
                                                 uint32_t error_size);
/* [any thread]
 * Makes a function that computes a formula slowly and plainly on the CPU: the oracle of tests,
 * which shares no code with the kernels. Floats are computed and returned in float64, without
 * rounding. A float that is written into a parameter, Tensor(a!), needs a parameter of float64.
 * Errors and lifetime: as for opdock_make_function. */
OPDOCK_EXPORT opdock_status opdock_make_evaluator(opdock_runtime* runtime, const char* schema,
                                                  const char* formula, opdock_function** out,
                                                  char* error, uint32_t error_size);

/* [any thread]
 * Returns the formula of the function's op in its own layout, one statement a line; "" if the op
 * has none. If the op is a plugin's, this loads the plugin, and returns "" if that fails. Valid as
 * long as the function. */
OPDOCK_EXPORT const char* opdock_function_formula(const opdock_function* function);

/* [any thread]
 * Writes the source of the kernel that a call on a GPU compiles, in which tensors have the dtype
 * ("float16"), all rows are contiguous, optional tensors and numbers are there, and choices have
 * their defaults. Rows have 4096 elements: kernels with reductions depend on that. For CUDA and HIP
 * the source is the same. *out is a NUL-terminated text; free it with opdock_free. Compiles
 * nothing. OPDOCK_NOT_FOUND: the op has no formula, or its plugin cannot be loaded.
 * OPDOCK_INVALID_ARGUMENT: there is no such dtype, or the formula does not take it. */
OPDOCK_EXPORT opdock_status opdock_formula_source(const opdock_function* function,
                                                  const char* dtype, char** out, char* error,
                                                  uint32_t error_size);

#ifdef __cplusplus
}
#endif
#endif /* OPDOCK_FORMULA_H_ */
