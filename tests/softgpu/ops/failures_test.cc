// Tests software GPUs that fail, from C++. Each failure gives its status and message and no wrong
// result; the process and the CPU continue to work.
// SPDX-License-Identifier: Apache-2.0
#include "softmax_rows.h"

namespace softgpu_ops {
namespace {

class Failures : public SoftGpu {};
INSTANTIATE_TEST_SUITE_P(Soft, Failures, every_arch(), arch_name);

// Names of the functions, which both drivers have.
struct Names {
  explicit Names(const std::string& arch) : amd(is_amd(arch)) {}
  bool amd;
  const char* launch = amd ? "hipModuleLaunchKernel" : "cuLaunchKernelEx";
  const char* allocate = amd ? "hipMallocAsync" : "cuMemAllocAsync";
  const char* load = amd ? "hipModuleLoadData" : "cuLibraryLoadData";
};

json failure(const char* function, int call, int error, bool sticky = false) {
  json rule = {{"function", function}, {"error", error}, {"sticky", sticky}};
  if (call != 0) rule["call"] = call;
  return {{"failures", {rule}}};
}

// Calls softmax once. Returns OPDOCK_OK if the result was right; otherwise *text states what went
// wrong.
opdock_status attempt(const opdock::Function& softmax, void* x, const std::vector<float>& values,
                      std::string* text) {
  try {
    const opdock::ResultList made = softmax(rows(x));
    std::vector<float> found;
    EXPECT_EQ(read(made[0].get().data, &found, nullptr), 0);
    expect_softmax(found, values);
    return OPDOCK_OK;
  } catch (const opdock::Error& error) {
    *text = error.what();
    return error.status();
  }
}

// Calls softmax `times` times on a GPU with the failure, then on the CPU, which must still work.
void attempts(const char* arch, const json& rule, int times,
              const std::function<void(int call, opdock_status, const std::string&)>& check) {
  gpu_child(arch, rule, [&] {
    opdock::Runtime runtime;
    const opdock::Function softmax = runtime.function("softmax");
    const std::vector<float> values = numbers(5);
    void* const x = new_memory(kBytes);
    ASSERT_EQ(to_device(x, values.data(), kBytes, nullptr), 0);
    for (int call = 1; call <= times; ++call) {
      std::string text;
      const opdock_status status = attempt(softmax, x, values, &text);
      check(call, status, text);
    }
    std::vector<float> found(values.size());
    softmax.into({{found.data(), {kRows, kLength}}}, nullptr,
                 opdock::TensorView(values.data(), {kRows, kLength}));
    expect_softmax(found, values);
    EXPECT_TRUE(findings().empty()) << findings().front();
  });
}

TEST_P(Failures, ALaunchThatFailsOnce) {
  const Names names(GetParam());
  const std::tuple<int, opdock_status, const char*, const char*> cases[] = {
      {2, OPDOCK_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "hipErrorOutOfMemory"},
      {701, OPDOCK_UNSUPPORTED, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
       "hipErrorLaunchOutOfResources"},
      {1, OPDOCK_DEVICE_ERROR, "CUDA_ERROR_INVALID_VALUE", "hipErrorInvalidValue"}};
  for (const auto& [error, wanted, cuda, hip] : cases) {
    const std::string name = names.amd ? hip : cuda;
    attempts(GetParam(), failure(names.launch, 2, error), 3,
             [&, wanted = wanted](int call, opdock_status status, const std::string& text) {
               EXPECT_EQ(status, call == 2 ? wanted : OPDOCK_OK) << text;
               if (call != 2) return;
               EXPECT_NE(text.find(name), text.npos) << text;
               EXPECT_NE(text.find("softmax"), text.npos) << text;
             });
  }
}

TEST_P(Failures, AStickyErrorStays) {
  const Names names(GetParam());
  const std::string name = names.amd ? "hipErrorLaunchFailure" : "CUDA_ERROR_LAUNCH_FAILED";
  attempts(GetParam(), failure(names.launch, 2, 719, true), 4,
           [&](int call, opdock_status status, const std::string& text) {
             EXPECT_EQ(status, call == 1 ? OPDOCK_OK : OPDOCK_DEVICE_LOST) << text;
             EXPECT_EQ(text.find(name) != text.npos, call > 1) << text;
           });
}

TEST_P(Failures, OutOfMemoryAtTheNthAllocation) {
  const Names names(GetParam());
  const std::string name = names.amd ? "hipErrorOutOfMemory" : "CUDA_ERROR_OUT_OF_MEMORY";
  for (int nth : {1, 3}) {
    attempts(GetParam(), failure(names.allocate, nth, 2), 4,
             [&](int call, opdock_status status, const std::string& text) {
               EXPECT_EQ(status, call == nth ? OPDOCK_OUT_OF_MEMORY : OPDOCK_OK) << text;
               EXPECT_EQ(text.find(name) != text.npos, call == nth) << text;
             });
  }
}

TEST_P(Failures, AnImageThatDoesNotLoad) {
  const Names names(GetParam());
  const std::string name = names.amd ? "hipErrorNoBinaryForGpu" : "CUDA_ERROR_NO_BINARY_FOR_GPU";
  attempts(GetParam(), failure(names.load, 0, 209), 2,
           [&](int, opdock_status status, const std::string& text) {
             EXPECT_NE(status, OPDOCK_OK);
             EXPECT_NE(text.find(name), text.npos) << text;
           });
}

TEST_P(Failures, ADeviceThatIsTooSmall) {
  json small = gpus({GetParam()});
  small[0]["memory"] = 3 * kBytes;
  gpu_child(GetParam(), {{"gpus", small}}, [] {
    opdock::Runtime runtime;
    const opdock::Function softmax = runtime.function("softmax");
    const std::vector<float> values = numbers(5);
    void* const x = new_memory(kBytes);
    ASSERT_EQ(to_device(x, values.data(), kBytes, nullptr), 0);
    std::string text;
    std::vector<opdock::ResultList> kept;
    for (int i = 0; i < 2; ++i) kept.push_back(softmax(rows(x)));
    EXPECT_EQ(attempt(softmax, x, values, &text), OPDOCK_OUT_OF_MEMORY) << text;
    kept.clear();  // there is room again
    EXPECT_EQ(attempt(softmax, x, values, &text), OPDOCK_OK) << text;
  });
}

// The memory is smaller than the tensor's shape states, as after a wrong size computation.
TEST_P(Failures, AnAccessOutsideOfItsMemoryLosesTheDevice) {
  gpu_child(GetParam(), json::object(), [] {
    opdock::Runtime runtime;
    const opdock::Function softmax = runtime.function("softmax");
    const std::vector<float> values = numbers(5);
    void *const x = new_memory(kBytes), *const y = new_memory(kBytes - 4);
    void* const stream = new_stream();
    const opdock_call_options options = on(stream);
    ASSERT_EQ(to_device(x, values.data(), kBytes, stream), 0);
    softmax.into({rows(y)}, &options, rows(x));
    EXPECT_EQ(synchronize(stream), 700);
    ASSERT_FALSE(findings().empty());
    EXPECT_NE(findings()[0].find("out-of-bounds write"), std::string::npos) << findings()[0];
    std::string text;
    EXPECT_EQ(attempt(softmax, x, values, &text), OPDOCK_DEVICE_LOST);
    EXPECT_NE(text.find("(700)"), text.npos) << text;
  });
}

}  // namespace
}  // namespace softgpu_ops
