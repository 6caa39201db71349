// A library with cuBLASLt's name that lacks some of its functions.
// SPDX-License-Identifier: Apache-2.0
__attribute__((visibility("default"))) int cublasLtCreate(void** out);
int cublasLtCreate(void** out) {
  *out = 0;
  return 1;
}
