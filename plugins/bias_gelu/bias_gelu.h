// Interface between the host code, compiled by any C++ compiler, and the GPU code, compiled by nvcc
// or hipcc.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace bias_gelu {

enum class Element { kFloat32, kFloat16, kBfloat16 };

// Contiguous device memory, aligned to its elements; out may be x.
struct Job {
  Element element;
  const void* x;     // [rows, length]
  const void* bias;  // [length]
  void* out;         // [rows, length]
  int64_t rows;      // at least 1
  int64_t length;    // at least 1
};

// Enqueues the kernel on `stream` (a CUstream or hipStream_t) in the current context. Neither waits
// nor allocates. Returns NULL, or the runtime's error text, which is never freed.
const char* launch(const Job& job, void* stream);

// Loads every kernel into the current context, so that launch() may be captured into a graph.
// Returns the same as launch(). May block.
const char* load_kernels();

}  // namespace bias_gelu
