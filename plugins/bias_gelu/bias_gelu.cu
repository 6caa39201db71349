// bias_gelu on the GPU, compiled by nvcc and by hipcc.
// SPDX-License-Identifier: Apache-2.0
#include "bias_gelu.h"
#include "gpu.h"

namespace bias_gelu {
namespace {

constexpr int kThreads = 256;
// Enough blocks to fill any GPU: more would only load the bias more often.
constexpr int64_t kBlocks = 8192;
constexpr int64_t kMaxGridY = 65535;

struct Half {
  unsigned short bits;
};
struct Bfloat16 {
  unsigned short bits;
};

__device__ float to_float(float value) {
  return value;
}
__device__ float to_float(Half value) {
  return __half2float(__ushort_as_half(value.bits));
}
__device__ float to_float(Bfloat16 value) {
  return __uint_as_float(static_cast<unsigned>(value.bits) << 16);
}

__device__ void assign(float value, float* out) {
  *out = value;
}
__device__ void assign(float value, Half* out) {
  out->bits = __half_as_ushort(__float2half_rn(value));
}
// Rounds to nearest, ties to even; NaN stays NaN.
__device__ void assign(float value, Bfloat16* out) {
  const unsigned bits = __float_as_uint(value);
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  const unsigned rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  out->bits = static_cast<unsigned short>(is_nan ? 0x7fffu : rounded);
}

// v * (1 + tanh(u)) / 2 equals v / (1 + exp(-2 u)), which loses no precision where tanh(u) is near
// -1.
__device__ float gelu(float v) {
  const float u = 0.7978845608f * (v + 0.044715f * v * v * v);
  return v / (1.0f + expf(-2.0f * u));
}

template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  T at[kCount];
};

// Each thread keeps one pack of the bias and goes down the rows; `columns` counts packs. x and out
// may be the same memory, because every element is read by the thread that writes it.
template <class T, int kCount>
__global__ void __launch_bounds__(kThreads)
    kernel(const Pack<T, kCount>* x, const Pack<T, kCount>* bias, Pack<T, kCount>* out,
           int64_t rows, int64_t columns) {
  const int64_t column = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (column >= columns) return;
  const Pack<T, kCount> b = bias[column];
  const int64_t step = int64_t{gridDim.y} * blockDim.y;
  for (int64_t row = int64_t{blockIdx.y} * blockDim.y + threadIdx.y; row < rows; row += step) {
    const int64_t i = row * columns + column;
    Pack<T, kCount> v = x[i];
#pragma unroll
    for (int k = 0; k < kCount; ++k) assign(gelu(to_float(v.at[k]) + to_float(b.at[k])), &v.at[k]);
    out[i] = v;
  }
}

int64_t divided(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}

const char* text_of(GPU(Error_t) error) {
  return error == GPU(Success) ? nullptr : GPU(GetErrorString)(error);
}

template <class T, int kCount>
const char* launch_packs(const Job& job, GPU(Stream_t) stream) {
  using Packs = Pack<T, kCount>;
  const int64_t columns = job.length / kCount;
  // If rows are short, a block is as wide as a row and handles several rows.
  int width = 1;
  while (width < kThreads && width < columns) width *= 2;
  const int height = kThreads / width;
  const int64_t across = divided(columns, width);
  const int64_t wanted = divided(kBlocks, across);
  const int64_t down = smaller(smaller(divided(job.rows, height), wanted), kMaxGridY);
  const dim3 grid(static_cast<unsigned>(across), static_cast<unsigned>(down));
  const dim3 block(static_cast<unsigned>(width), static_cast<unsigned>(height));
  kernel<T, kCount><<<grid, block, 0, stream>>>(static_cast<const Packs*>(job.x),
                                                static_cast<const Packs*>(job.bias),
                                                static_cast<Packs*>(job.out), job.rows, columns);
  return text_of(GPU(GetLastError)());
}

bool is_aligned(const void* address) {
  return reinterpret_cast<uintptr_t>(address) % 16 == 0;
}

template <class T>
const char* launch_elements(const Job& job, GPU(Stream_t) stream) {
  constexpr int kCount = 16 / sizeof(T);
  if (job.length % kCount == 0 && is_aligned(job.x) && is_aligned(job.bias) &&
      is_aligned(job.out)) {
    return launch_packs<T, kCount>(job, stream);
  }
  return launch_packs<T, 1>(job, stream);
}

// Asking for a kernel's attributes loads it.
template <class T>
const char* load_elements() {
  GPU(FuncAttributes) attributes;
  constexpr int kCount = 16 / sizeof(T);
  const char* problem = text_of(
      GPU(FuncGetAttributes)(&attributes, reinterpret_cast<const void*>(&kernel<T, kCount>)));
  if (problem != nullptr) return problem;
  return text_of(GPU(FuncGetAttributes)(&attributes, reinterpret_cast<const void*>(&kernel<T, 1>)));
}

}  // namespace

const char* launch(const Job& job, void* stream) {
  GPU(Stream_t) on = static_cast<GPU(Stream_t)>(stream);
  switch (job.element) {
    case Element::kFloat32:
      return launch_elements<float>(job, on);
    case Element::kFloat16:
      return launch_elements<Half>(job, on);
    case Element::kBfloat16:
      return launch_elements<Bfloat16>(job, on);
  }
  return "an element type that has no kernel";
}

const char* load_kernels() {
  const char* problem = load_elements<float>();
  if (problem == nullptr) problem = load_elements<Half>();
  if (problem == nullptr) problem = load_elements<Bfloat16>();
  return problem;
}

}  // namespace bias_gelu
