// Matrix products on GPUs: by the vendor's library if it supports them, else by Opdock's own
// kernels.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/reason.h"
#include "driver/driver.h"
#include "gemm/product.h"

namespace opdock::gemm {

// Numbers of the kernels of device/gemm.cuh.
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
// Name and text of a header with their source code.
struct OwnSource {
  const char* name;
  const char* text;
};
extern const OwnSource kOwnSources[2];  // the second header includes the first

// The parts of a call that a product in it needs.
class GpuCall {
 public:
  GpuCall(const opdock_call* call, Driver* driver) : call_(call), driver_(driver) {}
  virtual ~GpuCall() = default;
  const opdock_call* call() const { return call_; }
  Driver* driver() const { return driver_; }
  // Finds one of Opdock's own kernels, ready to be launched, and compiles it if necessary. Writes a
  // text on failure.
  virtual opdock_status kernel(OwnKernel which, opdock_kernel** out) = 0;

 private:
  const opdock_call* call_;
  Driver* driver_;
};

// Implement the three functions of the gemm table on CUDA and ROCm. The device's context is
// current, except while planning. flags: of opdock_gemm. A function that fails has written a text.
uint64_t workspace_on_gpu(const opdock_call* call, const Product& p, uint32_t flags);
opdock_status prepare_on_gpu(GpuCall* gpu, const Product& p);
opdock_status run_on_gpu(GpuCall* gpu, const Product& p, uint32_t flags, void* workspace,
                         uint64_t workspace_bytes);

// Outcome of a product that was given to a library.
enum class Done {
  kDone,      // enqueued
  kDeclined,  // plain kernels have to compute it; *why says why
  kFailed,    // *status says how; a text is written
};

// Launches one of Opdock's own kernels to compute a product.
opdock_status multiply_plainly(GpuCall* gpu, const Product& p);
// Launches a kernel that finishes the sums of a library. sums: where the library stored them.
opdock_status finish_sums(GpuCall* gpu, const Product& p, const Operand& sums);

}  // namespace opdock::gemm
