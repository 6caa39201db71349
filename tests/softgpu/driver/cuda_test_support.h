// Support for CUDA programs in tests: makes device 0's context current and loads kernels by name.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "softgpu/driver/cuda_types.h"
#include "test_support.h"

namespace softgpu_test {

inline constexpr unsigned kNonBlocking = 1;
// Number of ints that the tests' kernels get where the number does not matter.
inline constexpr int kCount = 100;
inline constexpr size_t kBytes = kCount * sizeof(int);

// Returns a configuration with two sm_90 GPUs of 1 MiB each; `more` overrides its entries.
json cuda_config(const json& more = json::object());

// Runs in_child() with libcuda initialised and the context of device 0 current.
void cuda_child(
    const json& more, const std::function<void()>& body,
    const std::function<void()>& after = [] {});

CUstream new_stream(unsigned flags = kNonBlocking);
CUdeviceptr new_memory(size_t bytes);
// Returns memory with `count` ints equal to `value`, filled on the default stream and waited for.
CUdeviceptr new_ints(size_t count, int value);
std::vector<int> ints_at(CUdeviceptr memory, size_t count);

// Allocates memory for `count` ints in the stream's order.
CUdeviceptr new_ordered(CUstream stream, size_t count);
// Copies `count` ints to the host in the stream's order and waits for the copy.
CUresult copy_back(CUdeviceptr memory, size_t count, CUstream stream);

// Loads the kernels that all tests share; the source file lists them.
CUmodule load_kernels();
CUfunction kernel(const char* name);

struct Shape {
  unsigned grid = 1, block = 32, shared = 0;
};
CUresult launch(CUfunction function, CUstream stream, Shape shape,
                const std::vector<void*>& arguments);
// Launches fill(int* out, int count, int value) with enough threads.
CUresult launch_fill(CUdeviceptr out, int count, int value, CUstream stream);
// Launches add(int* out, const int* in, int count).
CUresult launch_add(CUdeviceptr out, CUdeviceptr in, int count, CUstream stream);

inline CUresult synchronize(CUstream stream) {
  return call("cuStreamSynchronize", stream);
}
inline CUresult hold(CUstream stream, Gate* gate) {
  return call("cuLaunchHostFunc", stream, &Gate::wait, gate->data());
}

}  // namespace softgpu_test
