// The host over software GPUs of any kind: what its tests do with CUDA and HIP alike.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "driver/test_support.h"
#include "opdock/opdock.hpp"

namespace softgpu_ops {

using namespace softgpu_test;

inline constexpr int kNotReady = 600;  // of both drivers

// Tests take an architecture as their parameter: warps of 32 and 64 threads, both drivers. The last
// one, nightly.
inline auto every_arch() {
  return testing::Values("sm_90", "gfx90a", "gfx1030");
}
inline std::string arch_name(const testing::TestParamInfo<const char*>& info) {
  return info.param;
}

class SoftGpu : public testing::TestWithParam<const char*> {
 protected:
  // Fills the code folder from the built plugins; skips where they have no images for the GPU.
  void SetUp() override;
};

bool is_amd(const std::string& arch);

// One GPU of an architecture; several of them for "gpus" in a configuration.
json gpus(const std::vector<std::string>& archs);

// Runs `body` in a child with software GPUs, one of `arch` unless `more` says others, the first of
// which is current; the host finds the built plugins alone, and no way but their kernels.
void gpu_child(
    const std::string& arch, const json& more, const std::function<void()>& body,
    const std::function<void()>& after = [] {});

// All of these in the child; results are the driver's. Copies are enqueued; that to the host is
// waited for.
opdock::Device device(int index = 0);
int use_device(int index);
void* new_stream();
void* new_memory(size_t bytes);
int to_device(void* to, const void* from, size_t bytes, void* stream);
int to_host(void* to, const void* from, size_t bytes, void* stream);
int synchronize(void* stream);
int query(void* stream);
int hold(void* stream, Gate* gate);
// Work given to stream `then` from now on waits for what `first` has by now.
void order(void* first, void* then);
int begin_capture(void* stream);
// What was captured, ready to be launched.
void* end_capture(void* stream);
int launch_graph(void* graph, void* stream);

// Options of a call on a stream.
opdock_call_options on(void* stream);

}  // namespace softgpu_ops
