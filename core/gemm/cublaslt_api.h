// The part of cuBLASLt that Opdock uses, declared here so that building needs no toolkit. Names and
// values are from the cuBLAS reference; tests/gemm compares them with NVIDIA's header.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace opdock::cublaslt {

using Result = int;  // cublasStatus_t
using Handle = void*;
using Desc = void*;        // cublasLtMatmulDesc_t
using LtLayout = void*;    // cublasLtMatrixLayout_t
using Preference = void*;  // cublasLtMatmulPreference_t
using LtStream = void*;    // cudaStream_t, which is a CUstream

inline constexpr Result kSuccess = 0;        // CUBLAS_STATUS_…
inline constexpr Result kAllocFailed = 3;    // …ALLOC_FAILED
inline constexpr Result kInvalidValue = 7;   // …INVALID_VALUE
inline constexpr Result kArchMismatch = 8;   // …ARCH_MISMATCH
inline constexpr Result kNotSupported = 15;  // …NOT_SUPPORTED

// cudaDataType_t
inline constexpr int kR32F = 0;
inline constexpr int kR16F = 2;
inline constexpr int kR8I = 3;
inline constexpr int kR32I = 10;
inline constexpr int kR16BF = 14;
inline constexpr int kR8FE4M3 = 28;
inline constexpr int kR8FE5M2 = 29;

// cublasComputeType_t
inline constexpr int kCompute32F = 68;
inline constexpr int kCompute32I = 72;
inline constexpr int kCompute32FFastTf32 = 77;

// cublasOperation_t
inline constexpr int32_t kOpN = 0;
inline constexpr int32_t kOpT = 1;

// cublasLtMatmulDescAttributes_t, CUBLASLT_MATMUL_DESC_…
inline constexpr int kTransA = 3;
inline constexpr int kTransB = 4;
inline constexpr int kEpilogue = 7;
inline constexpr int kBiasPointer = 8;
inline constexpr int kAScalePointer = 17;
inline constexpr int kBScalePointer = 18;
inline constexpr int kDScalePointer = 20;

// cublasLtEpilogue_t
inline constexpr uint32_t kEpilogueDefault = 1;
inline constexpr uint32_t kEpilogueBias = 4;
inline constexpr uint32_t kEpilogueGelu = 32;  // tanh approximation

// cublasLtMatrixLayoutAttribute_t, CUBLASLT_MATRIX_LAYOUT_…
inline constexpr int kBatchCount = 5;
inline constexpr int kStridedBatchOffset = 6;

// cublasLtMatmulPreferenceAttributes_t, CUBLASLT_MATMUL_PREF_…
inline constexpr int kMaxWorkspaceBytes = 1;
inline constexpr int kReductionSchemeMask = 3;
inline constexpr int kMinAlignmentABytes = 5;
inline constexpr int kMinAlignmentBBytes = 6;
inline constexpr int kMinAlignmentCBytes = 7;
inline constexpr int kMinAlignmentDBytes = 8;

// cublasLtReductionScheme_t: …COMPUTE_TYPE adds the parts of a sum in float and in a fixed order;
// …OUTPUT_TYPE rounds each part, and …INPLACE has no fixed order.
inline constexpr uint32_t kReductionInFloat = 2;

struct Algo {  // cublasLtMatmulAlgo_t
  uint64_t data[8];
};
struct HeuristicResult {  // cublasLtMatmulHeuristicResult_t
  Algo algo;
  size_t workspace_bytes;
  Result state;
  float waves;
  int reserved[4];
};
static_assert(sizeof(HeuristicResult) == 96);

struct Api {
  Result (*cublasLtCreate)(Handle*);
  size_t (*cublasLtGetVersion)();
  const char* (*cublasLtGetStatusName)(Result);
  Result (*cublasLtMatmul)(Handle, Desc, const void* alpha, const void* a, LtLayout, const void* b,
                           LtLayout, const void* beta, const void* c, LtLayout, void* d, LtLayout,
                           const Algo*, void* workspace, size_t workspace_bytes, LtStream);
  Result (*cublasLtMatmulAlgoGetHeuristic)(Handle, Desc, LtLayout a, LtLayout b, LtLayout c,
                                           LtLayout d, Preference, int wanted, HeuristicResult*,
                                           int* found);
  Result (*cublasLtMatmulDescCreate)(Desc*, int compute_type, int scale_type);
  Result (*cublasLtMatmulDescDestroy)(Desc);
  Result (*cublasLtMatmulDescSetAttribute)(Desc, int attribute, const void* value, size_t bytes);
  Result (*cublasLtMatrixLayoutCreate)(LtLayout*, int type, uint64_t rows, uint64_t columns,
                                       int64_t ld);
  Result (*cublasLtMatrixLayoutDestroy)(LtLayout);
  Result (*cublasLtMatrixLayoutSetAttribute)(LtLayout, int attribute, const void* value,
                                             size_t bytes);
  Result (*cublasLtMatmulPreferenceCreate)(Preference*);
  Result (*cublasLtMatmulPreferenceDestroy)(Preference);
  Result (*cublasLtMatmulPreferenceSetAttribute)(Preference, int attribute, const void* value,
                                                 size_t bytes);
};

}  // namespace opdock::cublaslt
