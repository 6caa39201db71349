// Finds a BLAS for the CPU: one that the process has already loaded (NumPy's, torch's), or the
// system's.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/reason.h"

namespace opdock::gemm {

// The Fortran routine SGEMM. Its integers are passed by address. The address of a 64-bit integer
// also works for a library with 32-bit integers if the number fits, because the supported machines
// are little-endian.
using Sgemm = void (*)(const char* transpose_a, const char* transpose_b, const int64_t* m,
                       const int64_t* n, const int64_t* k, const float* alpha, const float* a,
                       const int64_t* lda, const float* b, const int64_t* ldb, const float* beta,
                       float* c, const int64_t* ldc, size_t length_a, size_t length_b);

struct Blas {
  Sgemm sgemm = nullptr;
  bool has_long = false;  // the library's integers have 64 bits
  std::string path;
};

// Returns the library, or NULL and *why (gemm-library-missing, gemm-library-unfit). Searches again
// after the process has loaded another object. In a forked process it returns only a library whose
// threads survive a fork. Any thread.
const Blas* find_blas(Reason* why);

}  // namespace opdock::gemm
