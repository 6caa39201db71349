// Compiled by nvcc for -Dcuda-archs; the CUDA runtime is linked statically, inside the plugin.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "opname.h"

template <class T>
__global__ void __launch_bounds__(256) multiply(const T* x, T* y, float a, int64_t n) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step)
    y[i] = static_cast<T>(a * static_cast<float>(x[i]));
}

static const char* text_of(cudaError_t error) {
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

template <class T>
static const char* launch(const void* x, void* y, float a, int64_t n, void* stream) {
  const int64_t blocks = (n + 255) / 256;
  multiply<<<static_cast<unsigned>(blocks < 65535 ? blocks : 65535), 256, 0,
             static_cast<cudaStream_t>(stream)>>>(static_cast<const T*>(x), static_cast<T*>(y), a,
                                                  n);
  return text_of(cudaGetLastError());
}

// Asking for a kernel's attributes loads it.
template <class T>
static const char* load() {
  cudaFuncAttributes attributes;
  return text_of(cudaFuncGetAttributes(&attributes, multiply<T>));
}

const char* launch_opname(Element element, const void* x, void* y, float a, int64_t n,
                          void* stream) {
  if (element == Element::kFloat16) return launch<__half>(x, y, a, n, stream);
  if (element == Element::kBfloat16) return launch<__nv_bfloat16>(x, y, a, n, stream);
  return launch<float>(x, y, a, n, stream);
}

const char* load_opname() {
  const char* problem = load<float>();
  if (problem == nullptr) problem = load<__half>();
  if (problem == nullptr) problem = load<__nv_bfloat16>();
  return problem;
}
