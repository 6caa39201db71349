// The host and a plugin over the software GPU, from C++: streams, graphs, devices and threads, and
// what a missing order costs. Runs under the sanitizers too.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstdlib>
#include <thread>

#include "driver/cuda_test_support.h"
#include "opdock/opdock.hpp"

namespace softgpu_test {
namespace {

constexpr int kNotReady = 600;
constexpr int64_t kRows = 5, kLength = 200;
constexpr size_t kBytes = kRows * kLength * sizeof(float);

// The plugin's images with their sources; then a runtime that finds this plugin alone.
void prepare_host() {
  const std::string command =
      std::string(SOFT_CODE) + " " + PLUGIN + " " + (folder() / "code").string() + " >/dev/null";
  ASSERT_EQ(std::system(command.c_str()), 0);
  setenv("OPDOCK_PLUGIN_PATH", PLUGIN, 1);
  setenv("OPDOCK_BUILD", "never", 1);
  setenv("OPDOCK_JIT", "never", 1);
  setenv("OPDOCK_FALLBACK", "error", 1);
}

void host_child(const json& more, const std::function<void()>& body) {
  json config = {{"cuda", 13000}, {"workers", 2}};
  config.update(more);
  cuda_child(config, [&] {
    prepare_host();
    body();
  });
}

std::vector<float> numbers(float first) {
  std::vector<float> values(kRows * kLength);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = std::sin(first + static_cast<float>(i * i % 1009));
  return values;
}

// softmax in double.
std::vector<double> oracle(const std::vector<float>& x) {
  std::vector<double> wanted(x.begin(), x.end());
  for (int64_t row = 0; row < kRows; ++row) {
    double* const at = wanted.data() + row * kLength;
    double sum = 0;
    for (int64_t i = 0; i < kLength; ++i) sum += at[i] = std::exp(at[i]);
    for (int64_t i = 0; i < kLength; ++i) at[i] /= sum;
  }
  return wanted;
}

void expect_softmax(const std::vector<float>& found, const std::vector<float>& x) {
  const std::vector<double> wanted = oracle(x);
  for (size_t i = 0; i < wanted.size(); ++i)
    ASSERT_NEAR(found[i], wanted[i], 1e-7) << "element " << i;
}

opdock::TensorView rows(CUdeviceptr memory, int device) {
  return {reinterpret_cast<float*>(memory), {kRows, kLength}, {OPDOCK_CUDA, device}};
}

opdock_call_options on(CUstream stream) {
  return {sizeof(opdock_call_options), 0, stream, nullptr, nullptr, 0};
}

CUresult to_device(CUdeviceptr to, const std::vector<float>& values, CUstream stream) {
  return call("cuMemcpyHtoDAsync_v2", to, static_cast<const void*>(values.data()), kBytes, stream);
}

CUresult read(CUdeviceptr from, std::vector<float>* values, CUstream stream) {
  values->assign(kRows * kLength, 0);
  const CUresult result =
      call("cuMemcpyDtoHAsync_v2", static_cast<void*>(values->data()), from, kBytes, stream);
  return result == CUDA_SUCCESS ? synchronize(stream) : result;
}

TEST(SoftHost, ACallIsEnqueuedOnItsStreamAndReturns) {
  host_child(json::object(), [] {
    opdock::Runtime runtime;
    const opdock::Function softmax = runtime.function("softmax");
    const CUstream stream = new_stream();
    const CUdeviceptr x = new_memory(kBytes), y = new_memory(kBytes);
    const std::vector<float> values = numbers(1);
    std::vector<float> found;
    Gate gate;
    ASSERT_EQ(hold(stream, &gate), CUDA_SUCCESS);
    ASSERT_EQ(to_device(x, values, stream), CUDA_SUCCESS);  // comes after the gate
    const opdock_call_options options = on(stream);
    softmax.into({rows(y, 0)}, &options, rows(x, 0));
    EXPECT_EQ(call("cuStreamQuery", stream), kNotReady) << "the call waited for the device";
    gate.open();
    ASSERT_EQ(read(y, &found, stream), CUDA_SUCCESS);
    expect_softmax(found, values);
    EXPECT_TRUE(findings().empty()) << findings().front();
  });
}

TEST(SoftHost, ACallOnAnotherStreamThanItsArgumentsIsFound) {
  host_child(json::object(), [] {
    opdock::Runtime runtime;
    const opdock::Function softmax = runtime.function("softmax");
    const CUstream makes = new_stream(), uses = new_stream();
    const CUdeviceptr x = new_memory(kBytes), y = new_memory(kBytes);
    const std::vector<float> values = numbers(2);
    ASSERT_EQ(to_device(x, values, makes), CUDA_SUCCESS);
    const opdock_call_options options = on(uses);
    softmax.into({rows(y, 0)}, &options, rows(x, 0));
    std::vector<float> found;
    const CUresult result = read(y, &found, uses);
    EXPECT_NE(result, CUDA_SUCCESS) << "a result came of what may not have been there yet";
    ASSERT_FALSE(findings().empty());
    EXPECT_NE(findings().front().find("stream"), std::string::npos) << findings().front();
  });
}

TEST(SoftHost, ACapturedCallRunsWhenItsGraphDoes) {
  host_child(json::object(), [] {
    opdock::Runtime runtime;
    opdock::Function softmax = runtime.function("softmax");
    softmax.prepare({OPDOCK_CUDA, 0});
    const CUstream stream = new_stream();
    const CUdeviceptr x = new_memory(kBytes), y = new_memory(kBytes);
    const opdock_call_options options = on(stream);
    ASSERT_EQ(call("cuStreamBeginCapture_v2", stream, 0), CUDA_SUCCESS);
    softmax.into({rows(y, 0)}, &options, rows(x, 0));
    void *graph = nullptr, *ready = nullptr;
    ASSERT_EQ(call("cuStreamEndCapture", stream, &graph), CUDA_SUCCESS);
    ASSERT_EQ(call("cuGraphInstantiateWithFlags", &ready, graph, 0ull), CUDA_SUCCESS);
    EXPECT_TRUE(findings().empty()) << "nothing was executed: x has no values yet";
    for (float first : {3.0f, 4.0f}) {
      const std::vector<float> values = numbers(first);
      ASSERT_EQ(to_device(x, values, stream), CUDA_SUCCESS);
      ASSERT_EQ(call("cuGraphLaunch", ready, stream), CUDA_SUCCESS);
      std::vector<float> found;
      ASSERT_EQ(read(y, &found, stream), CUDA_SUCCESS);
      expect_softmax(found, values);
    }
    EXPECT_TRUE(findings().empty());
  });
}

TEST(SoftHost, ThreadsOnStreamsOfFourDevices) {
  json gpus = json::array();
  for (int i = 0; i < 4; ++i) gpus.push_back({{"arch", "sm_90"}, {"memory", 1 << 20}});
  host_child({{"gpus", gpus}}, [] {
    opdock::Runtime runtime;
    const opdock::Function softmax = runtime.function("softmax");
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&softmax, i] {
        const int device = i % 4;
        CUcontext context = nullptr;
        EXPECT_EQ(call("cuDevicePrimaryCtxRetain", &context, device), CUDA_SUCCESS);
        EXPECT_EQ(call("cuCtxSetCurrent", context), CUDA_SUCCESS);
        const CUstream stream = new_stream();
        const CUdeviceptr x = new_memory(kBytes), y = new_memory(kBytes);
        const opdock_call_options options = on(stream);
        for (int round = 0; round < 3; ++round) {
          const std::vector<float> values = numbers(static_cast<float>(10 * i + round));
          EXPECT_EQ(to_device(x, values, stream), CUDA_SUCCESS);
          softmax.into({rows(y, device)}, &options, rows(x, device));
          std::vector<float> found;
          EXPECT_EQ(read(y, &found, stream), CUDA_SUCCESS);
          expect_softmax(found, values);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(findings().empty()) << findings().front();
  });
}

TEST(SoftHost, AFaultInAKernelIsALostDeviceForTheHost) {
  const json fault = {
      {"failures", {{{"function", "cuLaunchKernel"}, {"error", 719}, {"sticky", true}}}}};
  host_child(fault, [] {
    opdock::Runtime runtime;
    const opdock::Function softmax = runtime.function("softmax");
    const CUdeviceptr x = new_memory(kBytes), y = new_memory(kBytes);
    const std::vector<float> values = numbers(5);
    ASSERT_EQ(to_device(x, values, nullptr), CUDA_SUCCESS);
    for (int i = 0; i < 2; ++i) {
      try {
        softmax.into({rows(y, 0)}, nullptr, rows(x, 0));
        ADD_FAILURE() << "the launch has failed";
      } catch (const opdock::Error& error) {
        EXPECT_EQ(error.status(), OPDOCK_DEVICE_LOST) << error.what();
      }
    }
    // The CPU is as it was.
    std::vector<float> found(values.size());
    softmax.into({{found.data(), {kRows, kLength}}}, nullptr,
                 opdock::TensorView(values.data(), {kRows, kLength}));
    expect_softmax(found, values);
  });
}

}  // namespace
}  // namespace softgpu_test
