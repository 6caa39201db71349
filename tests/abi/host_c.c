/* A C program that uses the host: it finds abi_axpy in the plugin that its first argument names and
 * calls it in every way that opdock.h offers. Prints each failed check; returns 0 if none fails.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "opdock/opdock.h"

static char error[1024];
#define CHECK(condition)                                                 \
  do {                                                                   \
    if (!(condition)) {                                                  \
      fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, error); \
      return 1;                                                          \
    }                                                                    \
  } while (0)

static opdock_value tensor_value(const opdock_tensor* tensor) {
  opdock_value v;
  memset(&v, 0, sizeof v);
  v.tag = OPDOCK_TAG_TENSOR;
  v.as.tensor = tensor;
  return v;
}

int main(int argc, char** argv) {
  enum { COUNT = 100 };
  static float x[COUNT], y[COUNT], z[COUNT];
  int64_t shape[2] = {4, 25}, strides[2] = {25, 1};
  opdock_tensor tx = {x, {OPDOCK_CPU, 0}, 2, {OPDOCK_DTYPE_FLOAT, 32, 1}, shape, strides, 0};
  opdock_tensor ty = tx, tz = tx;
  opdock_value result;
  opdock_options options;
  opdock_call_options how;
  opdock_runtime* runtime = NULL;
  opdock_function *function = NULL, *again = NULL;
  opdock_value positional[2], named, bound[3];
  const char* name = "a";
  const opdock_function_info* info;
  opdock_output planned[1];
  opdock_plan plan;
  int i;
  CHECK(argc == 2);
  ty.data = y;
  tz.data = z;
  for (i = 0; i < COUNT; ++i) {
    x[i] = (float)i;
    y[i] = 1;
  }
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.plugin_path = argv[1];
  CHECK(opdock_runtime_create(&options, &runtime, error, sizeof error) == OPDOCK_OK);
  CHECK(opdock_get_function(runtime, "no_such_op", &function, error, sizeof error) ==
        OPDOCK_NOT_FOUND);
  CHECK(strstr(error, "no_such_op") != NULL);
  CHECK(opdock_get_function(runtime, "abi_axpy", &function, error, sizeof error) == OPDOCK_OK);
  CHECK(opdock_get_function(runtime, "abi_axpy/abi_axpy", &again, error, sizeof error) ==
        OPDOCK_OK);
  info = opdock_describe(function);
  CHECK(strcmp(info->schema, "abi_axpy(Tensor x, Tensor y, *, float a=1.0) -> Tensor") == 0);
  CHECK(strstr(opdock_function_doc(function), "elementwise") != NULL);
  CHECK(info->num_params == 3 && strcmp(info->params[2].name, "a") == 0);
  CHECK(info->params[2].fallback.as.f64 == 1.0);
  CHECK(info->num_results == 1 && info->results[0].tag == OPDOCK_TAG_TENSOR);
  CHECK(strcmp(info->results[0].shape_rule->text, "like x") == 0);

  positional[0] = tensor_value(&tx);
  positional[1] = tensor_value(&ty);
  memset(&named, 0, sizeof named);
  named.tag = OPDOCK_TAG_INT;
  named.as.i64 = 3;
  CHECK(opdock_bind(function, positional, 2, &name, &named, 1, bound, error, sizeof error) ==
        OPDOCK_OK);
  CHECK(bound[2].tag == OPDOCK_TAG_FLOAT && bound[2].as.f64 == 3.0);
  CHECK(opdock_bind(function, positional, 1, NULL, NULL, 0, bound, error, sizeof error) ==
        OPDOCK_INVALID_ARGUMENT);
  CHECK(strstr(error, "'y'") != NULL);
  CHECK(opdock_bind(function, positional, 2, &name, &named, 1, bound, error, sizeof error) ==
        OPDOCK_OK);
  CHECK(opdock_prepare(function, tx.device, error, sizeof error) == OPDOCK_OK);

  memset(&plan, 0, sizeof plan);
  plan.struct_size = sizeof plan;
  plan.outputs = planned;
#ifndef OPDOCK_TEST_SMALLER /* the smaller header's plan ends before room */
  plan.room = 1;
#endif
  memset(&how, 0, sizeof how);
  how.struct_size = sizeof how;
  CHECK(opdock_plan_call(function, &how, bound, 3, &plan, error, sizeof error) == OPDOCK_OK);
  CHECK(plan.struct_size == sizeof plan);
  CHECK(planned[0].ndim == 2 && planned[0].shape[1] == 25);
  result = tensor_value(&tz);
  CHECK(opdock_run_planned(function, &how, &plan, bound, 3, &result, 1, error, sizeof error) ==
        OPDOCK_OK);
  for (i = 0; i < COUNT; ++i) CHECK(z[i] == 3.0f * (float)i + 1.0f);

  memset(&result, 0, sizeof result);
  CHECK(opdock_invoke(again, NULL, bound, 3, &result, 1, error, sizeof error) == OPDOCK_OK);
  CHECK(result.tag == OPDOCK_TAG_TENSOR && (result.flags & OPDOCK_VALUE_OWNED) != 0);
  CHECK(((float*)result.as.tensor->data)[99] == 298.0f);
  opdock_value_free(&result);
  CHECK(result.tag == OPDOCK_TAG_NONE);

  result = tensor_value(&tx); /* the output is one of the arguments */
  CHECK(opdock_invoke(function, NULL, bound, 3, &result, 1, error, sizeof error) ==
        OPDOCK_INVALID_ARGUMENT);
  CHECK(strstr(error, "output 0") != NULL && strstr(error, "'x'") != NULL);
  tx.device.type = OPDOCK_ROCM;
  ty.device.type = OPDOCK_ROCM;
  CHECK(opdock_invoke(function, NULL, bound, 3, &result, 1, error, sizeof error) ==
        OPDOCK_INCOMPATIBLE);
  CHECK(strstr(error, "abi_axpy 1.2.3") != NULL);
  opdock_runtime_destroy(runtime);
  opdock_runtime_destroy(NULL);
  opdock_value_free(NULL);
  CHECK(opdock_get_function(NULL, "x", &function, error, sizeof error) == OPDOCK_INVALID_ARGUMENT);
  return 0;
}
