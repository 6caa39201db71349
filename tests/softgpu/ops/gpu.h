// Runs the host over software GPUs of either driver: what these tests do with CUDA and HIP alike.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "driver/test_support.h"
#include "opdock/opdock.hpp"

namespace softgpu_ops {

using namespace softgpu_test;

inline constexpr int kNotReady = 600;  // the same number in both drivers

// Architectures that tests take as their parameter: warps of 32 and 64 threads, both drivers.
// gfx1030 runs nightly.
inline auto every_arch() {
  return testing::Values("sm_90", "gfx90a", "gfx1030");
}
inline std::string arch_name(const testing::TestParamInfo<const char*>& info) {
  return info.param;
}

class SoftGpu : public testing::TestWithParam<const char*> {
 protected:
  // Fills the code folder from the built plugins; skips the test where they have no images for the
  // GPU.
  void SetUp() override;
};

bool is_amd(const std::string& arch);

// Returns GPUs of the named architectures, for "gpus" in a configuration.
json gpus(const std::vector<std::string>& archs);

// Runs `body` in a child with software GPUs: one of `arch` unless `more` states others. The first
// is current. The host finds only the built plugins, and uses only their kernels.
void gpu_child(
    const std::string& arch, const json& more, const std::function<void()>& body,
    const std::function<void()>& after = [] {});

// These functions run in the child and return the driver's results. Copies are enqueued; a copy to
// the host is also waited for.
opdock::Device device(int index = 0);
int use_device(int index);
void* new_stream();
void* new_memory(size_t bytes);
int to_device(void* to, const void* from, size_t bytes, void* stream);
int to_host(void* to, const void* from, size_t bytes, void* stream);
int synchronize(void* stream);
int query(void* stream);
// Returns how many bytes of the current GPU's memory are free.
size_t available_memory();
int hold(void* stream, Gate* gate);
// Makes work given to stream `then` from now on wait for the work that `first` has now.
void order(void* first, void* then);
int begin_capture(void* stream);
// Returns the captured work as a graph that is ready to be launched.
void* end_capture(void* stream);
int launch_graph(void* graph, void* stream);

// Returns options of a call on a stream.
opdock_call_options on(void* stream);

}  // namespace softgpu_ops
