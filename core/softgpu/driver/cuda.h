// What the files of libcuda.so.1 share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda_types.h"
#include "state.h"
#include "stream.h"

namespace softgpu {

inline void* pointer(CUdeviceptr address) {
  return reinterpret_cast<void*>(address);
}

// This thread's stack of contexts; the last is current.
std::vector<CUcontext>& context_stack();
CUcontext current_context();

// enter() for calls that need a current context; gives it. Fails as a context does after a fault.
CUresult enter_with_context(const char* function, CUcontext* context);

// enter() for calls about a stream; NULL and the handles 1 and 2 belong to the current context.
// `wrong` is the result for a handle that is none.
CUresult enter_with_stream(const char* function, CUstream handle, std::shared_ptr<Stream>* stream,
                           CUresult wrong = CUDA_ERROR_INVALID_HANDLE);

}  // namespace softgpu
