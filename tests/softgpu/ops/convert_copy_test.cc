// Tests the plugin convert_copy, which copies between the host and software GPUs: when copies take
// place on streams that are held back, from and to memory that the driver can copy directly.
// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <numeric>
#include <thread>

#include "gpu.h"

namespace softgpu_ops {
namespace {

constexpr int64_t kCount = 1000;
constexpr int kPooled = 8;  // number of the plugin's buffers that may wait for streams

std::vector<float> ascending(float first = 0) {
  std::vector<float> numbers(kCount);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

template <class T>
opdock::TensorView there(void* memory, int index = 0) {
  return {static_cast<T*>(memory), {kCount}, device(index)};
}
template <class T>
opdock::TensorView here(std::vector<T>& numbers) {
  return {numbers.data(), {kCount}};
}

template <class T>
std::vector<T> read_back(const void* memory, void* stream) {
  std::vector<T> numbers(kCount);
  EXPECT_EQ(to_host(numbers.data(), memory, kCount * sizeof(T), stream), 0);
  return numbers;
}

class Copies {
 public:
  // Each copy runs on a stream of the current device.
  void to_device(void* stream, const opdock::TensorView& dst, std::vector<float>& src) const {
    const opdock_call_options options = on(stream);
    to_device_.into({}, &options, dst, here(src));
  }
  template <class T>
  void to_host(void* stream, std::vector<T>& dst, const opdock::TensorView& src) const {
    const opdock_call_options options = on(stream);
    to_host_.into({}, &options, here(dst), src);
  }

 private:
  const opdock::Runtime runtime_;
  const opdock::Function to_device_ = runtime_.function("copy_to_device"),
                         to_host_ = runtime_.function("copy_to_host");
};

// Thread that is joined at the end of the scope, and knows whether its work is done.
class Work {
 public:
  explicit Work(const std::function<void()>& work)
      : thread_([this, work] {
          work();
          is_done_ = true;
        }) {}
  ~Work() { thread_.join(); }
  // Returns whether the work still runs after a time in which it would have ended without waiting.
  bool is_waiting() const {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    return !is_done_;
  }

 private:
  std::atomic<bool> is_done_ = false;
  std::thread thread_;
};

TEST_P(SoftGpu, TheSourceOfACopyMayBeChangedWhileItsStreamIsHeld) {
  gpu_child(GetParam(), json::object(), [] {
    const Copies copies;
    void* const stream = new_stream();
    void* const same = new_memory(kCount * sizeof(float));
    void* const wide = new_memory(kCount * sizeof(double));
    {
      Gate gate;
      ASSERT_EQ(hold(stream, &gate), 0);
      std::vector<float> src = ascending();
      copies.to_device(stream, there<float>(same), src);
      std::fill(src.begin(), src.end(), -1.0f);
      copies.to_device(stream, there<double>(wide), src = ascending(5));
      std::fill(src.begin(), src.end(), -2.0f);
      EXPECT_EQ(query(stream), kNotReady);
    }
    EXPECT_EQ(read_back<float>(same, stream), ascending());
    const std::vector<float> wanted = ascending(5);
    EXPECT_EQ(read_back<double>(wide, stream), std::vector<double>(wanted.begin(), wanted.end()));
    EXPECT_TRUE(findings().empty()) << findings().front();
  });
}

TEST_P(SoftGpu, ACopyWaitsOnlyWhereAllBuffersAreStillNeeded) {
  gpu_child(GetParam(), json::object(), [] {
    const Copies copies;
    void* const stream = new_stream();
    std::vector<void*> memory;
    for (int i = 0; i < 3 * kPooled; ++i) memory.push_back(new_memory(kCount * sizeof(float)));
    const auto copy = [&](int i) {
      std::vector<float> src = ascending(static_cast<float>(i));
      copies.to_device(stream, there<float>(memory[static_cast<size_t>(i)]), src);
    };
    {
      Gate gate;
      ASSERT_EQ(hold(stream, &gate), 0);
      for (int i = 0; i < kPooled; ++i) copy(i);
      const Work more([&] {
        EXPECT_EQ(use_device(0), 0);
        for (int i = kPooled; i < 3 * kPooled; ++i) copy(i);
      });
      EXPECT_TRUE(more.is_waiting());
      gate.open();
    }
    for (int i = 0; i < 3 * kPooled; ++i) {
      EXPECT_EQ(read_back<float>(memory[static_cast<size_t>(i)], stream),
                ascending(static_cast<float>(i)))
          << i;
    }
    EXPECT_TRUE(findings().empty()) << findings().front();
  });
}

TEST_P(SoftGpu, ACopyToTheHostWaitsForWhatIsOnItsStream) {
  gpu_child(GetParam(), json::object(), [] {
    const Copies copies;
    void* const stream = new_stream();
    void* const memory = new_memory(kCount * sizeof(float));
    std::vector<float> src = ascending();
    copies.to_device(stream, there<float>(memory), src);
    std::vector<double> dst(kCount, -1);
    {
      Gate gate;
      ASSERT_EQ(hold(stream, &gate), 0);
      src = ascending(7);
      copies.to_device(stream, there<float>(memory), src);
      const Work waits([&] {
        EXPECT_EQ(use_device(0), 0);
        copies.to_host(stream, dst, there<float>(memory));
      });
      EXPECT_TRUE(waits.is_waiting());
      gate.open();
    }
    EXPECT_EQ(dst, std::vector<double>(src.begin(), src.end()));
    EXPECT_TRUE(findings().empty()) << findings().front();
  });
}

TEST_P(SoftGpu, EachDeviceHasBuffersOfItsOwnForCopies) {
  const json two = {{"gpus", gpus({GetParam(), GetParam()})}};
  gpu_child(GetParam(), two, [] {
    const Copies copies;
    void* const first = new_stream();
    void* const memory = new_memory(kCount * sizeof(float));
    ASSERT_EQ(use_device(1), 0);
    void* const second = new_stream();
    void* const other = new_memory(kCount * sizeof(float));
    ASSERT_EQ(use_device(0), 0);
    std::vector<float> src = ascending(), found(kCount);
    Gate gate;
    ASSERT_EQ(hold(first, &gate), 0);
    for (int i = 0; i < kPooled; ++i) copies.to_device(first, there<float>(memory), src);
    src = ascending(3);
    copies.to_device(second, there<float>(other, 1), src);
    copies.to_host(second, found, there<float>(other, 1));
    EXPECT_EQ(found, src);
    gate.open();
    EXPECT_EQ(synchronize(first), 0);
    EXPECT_TRUE(findings().empty()) << findings().front();
  });
}

TEST_P(SoftGpu, ACopyIsRefusedWhileItsStreamIsCaptured) {
  gpu_child(GetParam(), json::object(), [] {
    const Copies copies;
    void* const stream = new_stream();
    void* const memory = new_memory(kCount * sizeof(float));
    std::vector<float> src = ascending();
    copies.to_device(stream, there<float>(memory), src);
    ASSERT_EQ(begin_capture(stream), 0);
    for (const bool back : {false, true}) {
      try {
        back ? copies.to_host(stream, src, there<float>(memory))
             : copies.to_device(stream, there<float>(memory), src);
        ADD_FAILURE() << "a graph would copy what is in a buffer by then";
      } catch (const opdock::Error& error) {
        EXPECT_EQ(error.status(), OPDOCK_UNSUPPORTED) << error.what();
        EXPECT_NE(std::string(error.what()).find("capture-safe"), std::string::npos);
      }
    }
    end_capture(stream);
    EXPECT_TRUE(findings().empty()) << findings().front();
  });
}

TEST_P(SoftGpu, AFailedCopyNamesTheDriversFunctionAndWhatToDo) {
  const bool amd = is_amd(GetParam());
  const std::string function = amd ? "hipMemcpyHtoDAsync" : "cuMemcpyHtoDAsync_v2";
  const json failures = {{{"function", function}, {"call", 1}, {"error", 1}},
                         {{"function", function}, {"call", 2}, {"error", 719}}};
  gpu_child(GetParam(), {{"failures", failures}}, [&] {
    const Copies copies;
    void* const stream = new_stream();
    void* const memory = new_memory(kCount * sizeof(float));
    std::vector<float> src = ascending();
    struct Wanted {
      opdock_status status;
      const char *cuda, *hip, *advice;
    };
    for (const Wanted& wanted : {
             Wanted{OPDOCK_DEVICE_ERROR, "CUDA_ERROR_INVALID_VALUE", "hipErrorInvalidValue",
                    " (1); see the driver's reference for this error"},
             Wanted{OPDOCK_DEVICE_LOST, "CUDA_ERROR_LAUNCH_FAILED", "hipErrorLaunchFailure",
                    " (719); the device is of no more use to this process"},
         }) {
      const std::string text = function + ": " + (amd ? wanted.hip : wanted.cuda) + wanted.advice;
      try {
        copies.to_device(stream, there<float>(memory), src);
        ADD_FAILURE() << "found no error, wanted " << text;
      } catch (const opdock::Error& error) {
        EXPECT_EQ(error.status(), wanted.status) << error.what();
        EXPECT_NE(std::string(error.what()).find(text), std::string::npos)
            << "found " << error.what() << ", wanted " << text;
      }
    }
  });
}

}  // namespace
}  // namespace softgpu_ops
