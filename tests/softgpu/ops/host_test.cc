// Tests the host and a plugin over software GPUs, from C++: streams, graphs, devices and threads,
// and the effect of a missing order. It also runs under the sanitizers.
// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <set>
#include <thread>

#include "gpu.h"
#include "softmax_rows.h"

namespace softgpu_ops {
namespace {

INSTANTIATE_TEST_SUITE_P(Soft, SoftGpu, every_arch(), arch_name);

TEST_P(SoftGpu, ACallIsEnqueuedOnItsStreamAndReturns) {
  gpu_child(GetParam(), json::object(), [] {
    opdock::Runtime runtime;
    const opdock::Function softmax = runtime.function("softmax");
    void* const stream = new_stream();
    void *const x = new_memory(kBytes), *const y = new_memory(kBytes);
    const std::vector<float> values = numbers(1);
    std::vector<float> found;
    Gate gate;
    ASSERT_EQ(hold(stream, &gate), 0);
    ASSERT_EQ(to_device(x, values.data(), kBytes, stream), 0);  // runs after the gate
    const opdock_call_options options = on(stream);
    softmax.into({rows(y)}, &options, rows(x));
    EXPECT_EQ(query(stream), kNotReady) << "the call waited for the device";
    gate.open();
    ASSERT_EQ(read(y, &found, stream), 0);
    expect_softmax(found, values);
    EXPECT_TRUE(findings().empty()) << findings().front();
  });
}

TEST_P(SoftGpu, ACallOnAnotherStreamThanItsArgumentsIsFound) {
  gpu_child(GetParam(), json::object(), [] {
    opdock::Runtime runtime;
    const opdock::Function softmax = runtime.function("softmax");
    void *const makes = new_stream(), *const uses = new_stream();
    void *const x = new_memory(kBytes), *const y = new_memory(kBytes);
    const std::vector<float> values = numbers(2);
    ASSERT_EQ(to_device(x, values.data(), kBytes, makes), 0);
    const opdock_call_options options = on(uses);
    softmax.into({rows(y)}, &options, rows(x));
    std::vector<float> found;
    EXPECT_NE(read(y, &found, uses), 0) << "a result came of what may not have been there yet";
    ASSERT_FALSE(findings().empty());
    EXPECT_NE(findings().front().find("stream"), std::string::npos) << findings().front();
    // The device is lost for good: the host reports what happened, and gives no result.
    try {
      softmax.into({rows(y)}, &options, rows(x));
      ADD_FAILURE() << "the device is lost";
    } catch (const opdock::Error& error) {
      EXPECT_EQ(error.status(), OPDOCK_DEVICE_LOST) << error.what();
    }
  });
}

TEST_P(SoftGpu, AStreamThatWaitsForAnotherUsesWhatThatMakes) {
  gpu_child(GetParam(), json::object(), [] {
    opdock::Runtime runtime;
    const opdock::Function softmax = runtime.function("softmax");
    void *const makes = new_stream(), *const uses = new_stream();
    void *const x = new_memory(kBytes), *const y = new_memory(kBytes);
    const std::vector<float> values = numbers(2);
    Gate gate;
    ASSERT_EQ(hold(makes, &gate), 0);
    ASSERT_EQ(to_device(x, values.data(), kBytes, makes), 0);
    order(makes, uses);
    const opdock_call_options options = on(uses);
    softmax.into({rows(y)}, &options, rows(x));
    EXPECT_EQ(query(uses), kNotReady) << "what it waits for is held back";
    gate.open();
    std::vector<float> found;
    ASSERT_EQ(read(y, &found, uses), 0);
    expect_softmax(found, values);
    EXPECT_TRUE(findings().empty()) << findings().front();
  });
}

TEST_P(SoftGpu, ACapturedCallRunsWhenItsGraphDoes) {
  gpu_child(GetParam(), json::object(), [] {
    opdock::Runtime runtime;
    const opdock::Function softmax = runtime.function("softmax");
    softmax.prepare(device());
    void* const stream = new_stream();
    void *const x = new_memory(kBytes), *const y = new_memory(kBytes);
    const opdock_call_options options = on(stream);
    ASSERT_EQ(begin_capture(stream), 0);
    softmax.into({rows(y)}, &options, rows(x));
    void* const graph = end_capture(stream);
    EXPECT_TRUE(findings().empty()) << "nothing was executed: x has no values yet";
    for (float first : {3.0f, 4.0f}) {
      const std::vector<float> values = numbers(first);
      ASSERT_EQ(to_device(x, values.data(), kBytes, stream), 0);
      ASSERT_EQ(launch_graph(graph, stream), 0);
      std::vector<float> found;
      ASSERT_EQ(read(y, &found, stream), 0);
      expect_softmax(found, values);
    }
    EXPECT_TRUE(findings().empty());
  });
}

// Computes softmax of rows of the given length in place.
void soften(std::vector<double>* values, size_t length) {
  for (size_t begin = 0; begin < values->size(); begin += length) {
    double sum = 0;
    for (size_t i = begin; i < begin + length; ++i) sum += std::exp((*values)[i]);
    for (size_t i = begin; i < begin + length; ++i) (*values)[i] = std::exp((*values)[i]) / sum;
  }
}

// Each launch reads what the previous one has written. The launches are small: on sm_90 they begin
// before the previous one has ended, and have to wait for it. They use lanes, blocks, rows that are
// read again, and single elements.
TEST_P(SoftGpu, SmallLaunchesWaitForTheOneBefore) {
  const std::string arch = GetParam();
  gpu_child(arch, json::object(), [&] {
    opdock::Runtime runtime;
    const opdock::Function softmax = runtime.function("softmax");
    const opdock::Function silu_backward = runtime.function("silu_backward");
    softmax.prepare(device());
    silu_backward.prepare(device());
    void* const stream = new_stream();
    float* const x = static_cast<float*>(new_memory(kBytes + 64));
    float* const y = static_cast<float*>(new_memory(kBytes));
    const auto view = [](float* memory, int64_t length) {
      return opdock::TensorView{memory, {kRows * kLength / length, length}, device()};
    };
    const std::vector<float> values = numbers(5);
    std::vector<double> wanted(values.begin(), values.end());
    for (const size_t length : {8, 500, 500, 500}) soften(&wanted, length);
    for (double& value : wanted) {
      const double sigmoid = 1 / (1 + std::exp(-value));
      value *= sigmoid * (1 + value * (1 - sigmoid));
    }
    soften(&wanted, 8);
    const opdock_call_options options = on(stream);
    const auto chain = [&] {
      softmax.into({view(y, 8)}, &options, view(x, 8));
      softmax.into({view(y, 500)}, &options, view(y, 500));
      softmax.into({view(x + 1, 500)}, &options, view(y, 500));
      softmax.into({view(y, 500)}, &options, view(x + 1, 500));
      silu_backward.into({view(x + 1, 500)}, &options, view(y, 500), view(y, 500));
      softmax.into({view(y, 8)}, &options, view(x + 1, 8));
    };
    ASSERT_EQ(begin_capture(stream), 0);
    chain();
    void* const graph = end_capture(stream);
    for (const bool captured : {false, true}) {
      ASSERT_EQ(to_device(x, values.data(), kBytes, stream), 0);
      if (captured) {
        ASSERT_EQ(launch_graph(graph, stream), 0);
      } else {
        chain();
      }
      std::vector<float> found;
      ASSERT_EQ(read(y, &found, stream), 0) << findings().front();
      for (size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], wanted[i], 1e-6) << i;
    }
    EXPECT_TRUE(findings().empty());
    const std::vector<json> launches = events("launch");
    EXPECT_GE(launches.size(), 6u);
    std::set<std::string> kernels;
    for (const json& launch : launches) {
      if (!is_amd(arch)) {
        EXPECT_EQ(launch.at("attributes").at("programmatic"), true);
      }
      kernels.insert(launch.at("function"));
    }
    EXPECT_EQ(kernels.size(), 4u);
  });
}

TEST_P(SoftGpu, ACaptureThatIsNotPreparedForIsRefused) {
  gpu_child(GetParam(), json::object(), [] {
    opdock::Runtime runtime;
    const opdock::Function softmax = runtime.function("softmax");
    void* const stream = new_stream();
    void *const x = new_memory(kBytes), *const y = new_memory(kBytes);
    const opdock_call_options options = on(stream);
    ASSERT_EQ(begin_capture(stream), 0);
    try {
      softmax.into({rows(y)}, &options, rows(x));
      ADD_FAILURE() << "its kernels are not loaded";
    } catch (const opdock::Error& error) {
      EXPECT_NE(std::string(error.what()).find("prepare"), std::string::npos) << error.what();
    }
    EXPECT_TRUE(events("launch").empty());
  });
}

// A graph may free only what it has allocated, so the driver refuses to free the result meanwhile.
TEST_P(SoftGpu, AResultThatIsFreedDuringACaptureIsFreedAfterIt) {
  gpu_child(GetParam(), json::object(), [] {
    opdock::Runtime runtime;
    const opdock::Function softmax = runtime.function("softmax");
    softmax.prepare(device());
    void* const stream = new_stream();
    void* const x = new_memory(kBytes);
    std::vector<float> found;
    const std::vector<float> values = numbers(3);
    ASSERT_EQ(to_device(x, values.data(), kBytes, stream), 0);
    const opdock_call_options options = on(stream);
    const auto available = [&] {
      EXPECT_EQ(read(x, &found, stream), 0);  // what was enqueued is done
      return available_memory();
    };
    softmax.into({}, &options, rows(x));
    const size_t before = available();
    std::optional<opdock::ResultList> result = softmax.into({}, &options, rows(x));
    EXPECT_LT(available(), before);
    ASSERT_EQ(begin_capture(stream), 0);
    result.reset();
    end_capture(stream);
    softmax.into({}, &options, rows(x));
    EXPECT_EQ(available(), before);
    EXPECT_TRUE(findings().empty()) << findings().front();
  });
}

TEST_P(SoftGpu, ThreadsOnStreamsOfFourDevices) {
  const std::string arch = GetParam();
  gpu_child(arch, {{"gpus", gpus({arch, arch, arch, arch})}}, [] {
    opdock::Runtime runtime;
    const opdock::Function softmax = runtime.function("softmax");
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&softmax, i] {
        const int own = i % 4;
        EXPECT_EQ(use_device(own), 0);
        void* const stream = new_stream();
        void *const x = new_memory(kBytes), *const y = new_memory(kBytes);
        const opdock_call_options options = on(stream);
        for (int round = 0; round < 3; ++round) {
          const std::vector<float> values = numbers(static_cast<float>(10 * i + round));
          EXPECT_EQ(to_device(x, values.data(), kBytes, stream), 0);
          softmax.into({rows(y, own)}, &options, rows(x, own));
          std::vector<float> found;
          EXPECT_EQ(read(y, &found, stream), 0);
          expect_softmax(found, values);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(findings().empty()) << findings().front();
    std::set<int> used;
    for (const json& launch : events("launch")) used.insert(launch["device"].get<int>());
    EXPECT_EQ(used.size(), 4u);
  });
}

// The current device is not the arguments' device; it stays current after the call.
TEST_P(SoftGpu, ACallOnADeviceThatIsNotCurrent) {
  const std::string arch = GetParam();
  gpu_child(arch, {{"gpus", gpus({arch, arch})}}, [] {
    opdock::Runtime runtime;
    const opdock::Function softmax = runtime.function("softmax");
    ASSERT_EQ(use_device(1), 0);
    void* const stream = new_stream();
    void *const x = new_memory(kBytes), *const y = new_memory(kBytes);
    ASSERT_EQ(use_device(0), 0);
    void* const other = new_stream();
    const std::vector<float> values = numbers(6);
    const opdock_call_options options = on(stream), wrong = on(other);
    ASSERT_EQ(to_device(x, values.data(), kBytes, stream), 0);
    softmax.into({rows(y, 1)}, &options, rows(x, 1));
    std::vector<float> found;
    ASSERT_EQ(read(y, &found, stream), 0);
    expect_softmax(found, values);
    EXPECT_EQ(events("launch").back()["device"], 1);
    EXPECT_TRUE(findings().empty());
    // The stream belongs to a device that has none of the arguments. HIP would refuse the launch;
    // CUDA's launch goes to the stream's device, which cannot access the arguments.
    if (device().type == OPDOCK_ROCM) {
      EXPECT_THROW(softmax.into({rows(y, 1)}, &wrong, rows(x, 1)), opdock::Error);
    } else {
      softmax.into({rows(y, 1)}, &wrong, rows(x, 1));
      EXPECT_EQ(synchronize(other), 700);
      ASSERT_FALSE(findings().empty());
      EXPECT_NE(findings()[0].find("device 1"), std::string::npos) << findings()[0];
    }
  });
}

}  // namespace
}  // namespace softgpu_ops
