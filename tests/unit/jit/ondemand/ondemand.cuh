// SPDX-License-Identifier: Apache-2.0
template <int N>
__global__ void add(float* x) {
  *x += N;
}

// Does not compile for one architecture, sm_80.
template <class T>
__global__ void faulty(T* x) {
#if __CUDA_ARCH__ == 800
  x->no_such_member();
#endif
}
