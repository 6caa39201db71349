// Declarations that the files of libcuda.so.1 share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda_types.h"
#include "state.h"
#include "stream.h"

namespace softgpu {

inline void* pointer(CUdeviceptr address) {
  return reinterpret_cast<void*>(address);
}

// This thread's stack of contexts; the last one is current.
std::vector<CUcontext>& context_stack();
CUcontext current_context();

// Calls enter() for a function that needs a current context, and sets *context to it. After a fault
// returns the context's error.
CUresult enter_with_context(const char* function, CUcontext* context);

// Calls enter() for a function of a stream. NULL and the handles 1 and 2 belong to the current
// context. `wrong` is the result for an invalid handle.
CUresult enter_with_stream(const char* function, CUstream handle, std::shared_ptr<Stream>* stream,
                           CUresult wrong = CUDA_ERROR_INVALID_HANDLE);

}  // namespace softgpu
