// Products on GPUs: by the vendor's library where it has them, else by kernels of our own.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/reason.h"
#include "driver/driver.h"
#include "gemm/product.h"

namespace opdock::gemm {

// The kernels of device/gemm.cuh, by number.
enum OwnKernel : uint32_t {
  kMultiplyFloats,
  kMultiplyIntegers,
  kFinishSums,
  kFinishHalves,
  kFinishBfloats,
  kOwnKernels
};
inline constexpr const char* kOwnNames[kOwnKernels] = {
    "opdock::gemm::multiply_floats", "opdock::gemm::multiply_integers", "opdock::gemm::finish_sums",
    "opdock::gemm::finish_vectors<opdock::half>", "opdock::gemm::finish_vectors<opdock::bfloat16>"};
// Their headers' names and texts.
struct OwnSource {
  const char* name;
  const char* text;
};
extern const OwnSource kOwnSources[2];  // the last one includes the first

// What a product needs of the call that it is part of.
class GpuCall {
 public:
  GpuCall(const opdock_call* call, Driver* driver) : call_(call), driver_(driver) {}
  virtual ~GpuCall() = default;
  const opdock_call* call() const { return call_; }
  Driver* driver() const { return driver_; }
  // One of our own, ready to be launched. Compiles it if need be; a failure has written its text.
  virtual opdock_status kernel(OwnKernel which, opdock_kernel** out) = 0;

 private:
  const opdock_call* call_;
  Driver* driver_;
};

// The three functions of the table, on CUDA and ROCm. The device's context is current, except while
// planning. flags: of opdock_gemm. Failures have written their texts.
uint64_t workspace_on_gpu(const opdock_call* call, const Product& p, uint32_t flags);
opdock_status prepare_on_gpu(GpuCall* gpu, const Product& p);
opdock_status run_on_gpu(GpuCall* gpu, const Product& p, uint32_t flags, void* workspace,
                         uint64_t workspace_bytes);

// How a library was left with a product.
enum class Done {
  kDone,      // enqueued
  kDeclined,  // *why: plain kernels are to do it
  kFailed,    // *status; the text is written
};

// Launches of our own kernels.
opdock_status multiply_plainly(GpuCall* gpu, const Product& p);
// sums: where a library has left them.
opdock_status finish_sums(GpuCall* gpu, const Product& p, const Operand& sums);

}  // namespace opdock::gemm
