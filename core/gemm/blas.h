// A BLAS on the CPU: what the process has loaded already (NumPy's, torch's), or the system's.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/reason.h"

namespace opdock::gemm {

// The Fortran routine SGEMM. Its integers are passed by address: one of 64 bits is also right for a
// library whose own have 32, as machines here are little-endian, if the number fits.
using Sgemm = void (*)(const char* transpose_a, const char* transpose_b, const int64_t* m,
                       const int64_t* n, const int64_t* k, const float* alpha, const float* a,
                       const int64_t* lda, const float* b, const int64_t* ldb, const float* beta,
                       float* c, const int64_t* ldc, size_t length_a, size_t length_b);

struct Blas {
  Sgemm sgemm = nullptr;
  bool has_long = false;  // its integers have 64 bits
  std::string path;
};

// The library, or NULL and *why (gemm-library-missing). Looks again once the process has loaded
// something more. After a fork only a library whose threads survive it. Any thread.
const Blas* find_blas(Reason* why);

}  // namespace opdock::gemm
