// Compares core/gemm/cublaslt_api.h with NVIDIA's header: test_cublaslt.py compiles this, and
// nothing runs it.
// SPDX-License-Identifier: Apache-2.0
#include <cublasLt.h>

#include <type_traits>

#include "gemm/cublaslt_api.h"

namespace opdock::cublaslt {

// Names of this namespace hide NVIDIA's, which are global.
#define CHECK_NUMBER(name) static_assert(static_cast<int>(name) == static_cast<int>(::name))
CHECK_NUMBER(CUBLAS_STATUS_SUCCESS);
CHECK_NUMBER(CUBLAS_STATUS_ALLOC_FAILED);
CHECK_NUMBER(CUBLAS_STATUS_INVALID_VALUE);
CHECK_NUMBER(CUBLAS_STATUS_ARCH_MISMATCH);
CHECK_NUMBER(CUBLAS_STATUS_NOT_SUPPORTED);
CHECK_NUMBER(CUDA_R_32F);
CHECK_NUMBER(CUDA_R_16F);
CHECK_NUMBER(CUDA_R_8I);
CHECK_NUMBER(CUDA_R_32I);
CHECK_NUMBER(CUDA_R_16BF);
CHECK_NUMBER(CUDA_R_8F_E4M3);
CHECK_NUMBER(CUDA_R_8F_E5M2);
CHECK_NUMBER(CUBLAS_COMPUTE_32F);
CHECK_NUMBER(CUBLAS_COMPUTE_32I);
CHECK_NUMBER(CUBLAS_COMPUTE_32F_FAST_TF32);
CHECK_NUMBER(CUBLAS_OP_N);
CHECK_NUMBER(CUBLAS_OP_T);
CHECK_NUMBER(CUBLASLT_MATMUL_DESC_TRANSA);
CHECK_NUMBER(CUBLASLT_MATMUL_DESC_TRANSB);
CHECK_NUMBER(CUBLASLT_MATMUL_DESC_EPILOGUE);
CHECK_NUMBER(CUBLASLT_MATMUL_DESC_BIAS_POINTER);
CHECK_NUMBER(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER);
CHECK_NUMBER(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER);
CHECK_NUMBER(CUBLASLT_MATMUL_DESC_D_SCALE_POINTER);
CHECK_NUMBER(CUBLASLT_EPILOGUE_BIAS);
CHECK_NUMBER(CUBLASLT_EPILOGUE_GELU);
CHECK_NUMBER(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
CHECK_NUMBER(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
CHECK_NUMBER(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
CHECK_NUMBER(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
CHECK_NUMBER(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
CHECK_NUMBER(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
CHECK_NUMBER(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
CHECK_NUMBER(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
CHECK_NUMBER(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
static_assert((CUBLASLT_EPILOGUE_GELU | CUBLASLT_EPILOGUE_BIAS) == ::CUBLASLT_EPILOGUE_GELU_BIAS);
static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(::cublasLtMatmulAlgo_t));
using Ours = cublasLtMatmulHeuristicResult_t;
using Theirs = ::cublasLtMatmulHeuristicResult_t;
static_assert(sizeof(Ours) == sizeof(Theirs) &&
              offsetof(Ours, workspaceSize) == offsetof(Theirs, workspaceSize) &&
              offsetof(Ours, state) == offsetof(Theirs, state));

// Whether each parameter is passed in the same way: an enum as an int, a handle as a pointer.
template <class Ours, class Theirs>
struct Same;
template <class R, class... A, class Q, class... B>
struct Same<R (*)(A...), Q(B...)> {
  template <class X, class Y>
  static constexpr bool one =
      std::is_pointer_v<X> == std::is_pointer_v<Y> && sizeof(X) == sizeof(Y);
  static constexpr bool value = sizeof...(A) == sizeof...(B) && one<R, Q> && (one<A, B> && ...);
};
#define CHECK(name) static_assert(Same<decltype(Api::name), decltype(::name)>::value)
CHECK(cublasLtCreate);
CHECK(cublasLtGetVersion);
CHECK(cublasLtGetStatusName);
CHECK(cublasLtMatmul);
CHECK(cublasLtMatmulAlgoGetHeuristic);
CHECK(cublasLtMatmulDescCreate);
CHECK(cublasLtMatmulDescDestroy);
CHECK(cublasLtMatmulDescSetAttribute);
CHECK(cublasLtMatrixLayoutCreate);
CHECK(cublasLtMatrixLayoutDestroy);
CHECK(cublasLtMatrixLayoutSetAttribute);
CHECK(cublasLtMatmulPreferenceCreate);
CHECK(cublasLtMatmulPreferenceDestroy);
CHECK(cublasLtMatmulPreferenceSetAttribute);

}  // namespace opdock::cublaslt
