/* A program in C that calls an op: softmax over the rows of a 2 x 3 matrix of float32 on the CPU.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Prints the result; 1 and the reason if there is none. */
#include <opdock/opdock.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  char error[4096] = ""; /* every call that may fail writes its reason here */
  float in[2][3] = {{1, 2, 3}, {1, 1, 1}}, out[2][3];
  int64_t shape[] = {2, 3}, strides[] = {3, 1}; /* in elements */
  opdock_tensor x = {in, {OPDOCK_CPU, 0}, 2, {OPDOCK_DTYPE_FLOAT, 32, 1}, shape, strides, 0};
  opdock_tensor y = x;
  opdock_value given, args[4], result;
  opdock_runtime* runtime = NULL;
  opdock_function* softmax = NULL;
  int row;

  y.data = out;
  memset(&given, 0, sizeof given);
  given.tag = OPDOCK_TAG_TENSOR;
  given.as.tensor = &x;
  result = given; /* zeros, OPDOCK_TAG_NONE, would let the host allocate the tensor */
  result.as.tensor = &y;
  /* No options: plugins are searched in the usual places. opdock_bind fills in the defaults of what
   * is not given: softmax has four parameters. */
  if (opdock_runtime_create(NULL, &runtime, error, sizeof error) != OPDOCK_OK ||
      opdock_get_function(runtime, "softmax", &softmax, error, sizeof error) != OPDOCK_OK ||
      opdock_bind(softmax, &given, 1, NULL, NULL, 0, args, error, sizeof error) != OPDOCK_OK ||
      opdock_invoke(softmax, NULL, args, 4, &result, 1, error, sizeof error) != OPDOCK_OK) {
    fprintf(stderr, "%s\n", error);
    return 1;
  }
  for (row = 0; row < 2; ++row) printf("%.4f %.4f %.4f\n", out[row][0], out[row][1], out[row][2]);
  opdock_runtime_destroy(runtime);
  return 0;
}
