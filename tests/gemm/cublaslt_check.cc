// Compares core/gemm/cublaslt_api.h with NVIDIA's header: test_cublaslt.py compiles this, and
// nothing runs it.
// SPDX-License-Identifier: Apache-2.0
#include <cublasLt.h>

#include <type_traits>

#include "gemm/cublaslt_api.h"

namespace opdock::cublaslt {

static_assert(kSuccess == CUBLAS_STATUS_SUCCESS && kAllocFailed == CUBLAS_STATUS_ALLOC_FAILED &&
              kInvalidValue == CUBLAS_STATUS_INVALID_VALUE &&
              kArchMismatch == CUBLAS_STATUS_ARCH_MISMATCH &&
              kNotSupported == CUBLAS_STATUS_NOT_SUPPORTED);
static_assert(kR32F == CUDA_R_32F && kR16F == CUDA_R_16F && kR8I == CUDA_R_8I &&
              kR32I == CUDA_R_32I && kR16BF == CUDA_R_16BF && kR8FE4M3 == CUDA_R_8F_E4M3 &&
              kR8FE5M2 == CUDA_R_8F_E5M2);
static_assert(kCompute32F == CUBLAS_COMPUTE_32F && kCompute32I == CUBLAS_COMPUTE_32I &&
              kCompute32FFastTf32 == CUBLAS_COMPUTE_32F_FAST_TF32);
static_assert(kOpN == CUBLAS_OP_N && kOpT == CUBLAS_OP_T);
static_assert(kTransA == CUBLASLT_MATMUL_DESC_TRANSA && kTransB == CUBLASLT_MATMUL_DESC_TRANSB &&
              kEpilogue == CUBLASLT_MATMUL_DESC_EPILOGUE &&
              kBiasPointer == CUBLASLT_MATMUL_DESC_BIAS_POINTER &&
              kAScalePointer == CUBLASLT_MATMUL_DESC_A_SCALE_POINTER &&
              kBScalePointer == CUBLASLT_MATMUL_DESC_B_SCALE_POINTER &&
              kDScalePointer == CUBLASLT_MATMUL_DESC_D_SCALE_POINTER);
static_assert(kEpilogueDefault == CUBLASLT_EPILOGUE_DEFAULT &&
              kEpilogueBias == CUBLASLT_EPILOGUE_BIAS && kEpilogueGelu == CUBLASLT_EPILOGUE_GELU &&
              (kEpilogueGelu | kEpilogueBias) == CUBLASLT_EPILOGUE_GELU_BIAS);
static_assert(kBatchCount == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT &&
              kStridedBatchOffset == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
static_assert(kMaxWorkspaceBytes == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES &&
              kReductionSchemeMask == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK &&
              kMinAlignmentABytes == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES &&
              kMinAlignmentBBytes == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES &&
              kMinAlignmentCBytes == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES &&
              kMinAlignmentDBytes == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
static_assert(kReductionInFloat == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
static_assert(sizeof(Algo) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(HeuristicResult) == sizeof(cublasLtMatmulHeuristicResult_t) &&
              offsetof(HeuristicResult, workspace_bytes) ==
                  offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize) &&
              offsetof(HeuristicResult, state) == offsetof(cublasLtMatmulHeuristicResult_t, state));

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
