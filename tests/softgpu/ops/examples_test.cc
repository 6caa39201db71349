// Runs every op of this tree that has kernels for the software GPU, and compares its results with
// the CPU's. The plugins' examples (tests/plugins/examples.h) go through the host.
// SPDX-License-Identifier: Apache-2.0
#include "plugins/examples.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>

#include "gpu.h"
#include "support/tree_plugins.h"

namespace softgpu_ops {
namespace {

using opdock_test::Array;
using opdock_test::Example;
using opdock_test::Type;

class Examples : public SoftGpu {};
INSTANTIATE_TEST_SUITE_P(Soft, Examples, every_arch(), arch_name);

// Returns whether the example's op has kernels for this GPU in its plugin's binary, and also runs
// on the CPU.
bool is_for(const Example& example, const std::string& backend) {
  for (const opdock_test::TreePlugin& plugin : opdock_test::plugins_with_kernels(backend))
    for (const opdock_test::TreeOp& op : plugin.ops)
      if (plugin.name == example.plugin && op.name == example.op)
        return op.devices.contains(backend) && op.devices.contains("cpu");
  return false;
}

// The example's arguments on the GPU, except those that an op wants on the CPU. Generators keep
// their present positions.
class Moved {
 public:
  Moved(const Example& example, const opdock_function_info& op)
      : there_(example.args,
               [&](size_t param, opdock_tensor* tensor, opdock_value*) {
                 if (op.params[param].device != OPDOCK_ON_CPU) move(tensor);
               }),
        generators_(example.args.size()),
        args(there_.args) {
    for (size_t i = 0; i < args.size(); ++i) {
      if (args[i].tag != OPDOCK_TAG_GENERATOR) continue;
      generators_[i] = *args[i].as.generator;
      args[i].as.generator = &generators_[i];
    }
  }
  Moved(const Moved&) = delete;

  // Copies back what the op has written to these arrays.
  void copy_back(const std::vector<Array*>& arrays) const {
    for (Array* array : arrays) {
      const auto moved = memory_.find(array->tensor()->data);
      if (moved == memory_.end()) continue;
      EXPECT_EQ(to_host(moved->first, moved->second.first, moved->second.second, nullptr), 0);
    }
  }

 private:
  void move(opdock_tensor* tensor) {
    tensor->device = device();
    int64_t last = 0;
    for (int32_t i = 0; i < tensor->ndim; ++i) {
      if (tensor->shape[i] == 0) return;
      last += (tensor->shape[i] - 1) * tensor->strides[i];
    }
    const opdock::Dtype dtype(tensor->dtype);
    const size_t bytes = tensor->byte_offset + static_cast<size_t>((last + 1) * dtype.bytes());
    void* const there = new_memory(bytes);
    EXPECT_EQ(to_device(there, tensor->data, bytes, nullptr), 0);
    memory_[tensor->data] = {there, bytes};
    tensor->data = there;
  }

  std::map<void*, std::pair<void*, size_t>> memory_;  // {host address: (device address, bytes)}
  opdock_test::ChangedTensors there_;
  std::vector<opdock_generator> generators_;

 public:
  std::vector<opdock_value> args;
};

std::vector<std::vector<double>> numbers_of(const std::vector<Array*>& arrays) {
  std::vector<std::vector<double>> numbers;
  for (const Array* array : arrays) {
    std::vector<double>& own = numbers.emplace_back();
    for (int64_t i = 0; i < array->numel(); ++i) own.push_back(array->get(i));
  }
  return numbers;
}

// The tolerance covers a few roundings in float and the rounding of the results.
void expect_near(const Array& found, const std::vector<double>& wanted, const std::string& what) {
  const double relative = 1e-5 + 2 * opdock_test::half_ulp(found.type());
  ASSERT_EQ(found.numel(), static_cast<int64_t>(wanted.size())) << what;
  for (int64_t i = 0; i < found.numel(); ++i) {
    const double want = wanted[static_cast<size_t>(i)];
    if (found.get(i) == want) continue;  // equal infinities differ by no number
    ASSERT_NEAR(found.get(i), want, relative * std::max(1.0, std::fabs(want)))
        << what << ", element " << i;
  }
}

// Calls the op and returns its results, which the host allocates, with the types of the example's
// outputs.
std::vector<std::unique_ptr<Array>> results(const opdock::Function& op, const Example& example,
                                            const std::vector<opdock_value>& args) {
  opdock::ResultList returned(op.info().num_results);
  char error[1024] = "";
  EXPECT_EQ(
      opdock_invoke(op.get(), nullptr, args.data(), static_cast<uint32_t>(args.size()),
                    returned.data(), static_cast<uint32_t>(returned.size()), error, sizeof error),
      OPDOCK_OK)
      << error;
  // Flattens the results: tensors, and the tensors of lists, one after the other.
  std::vector<opdock::ResultTensor> outputs;
  for (size_t i = 0; i < returned.size(); ++i) {
    if (returned.value(i).tag == OPDOCK_TAG_TENSOR) outputs.push_back(returned[i]);
    if (returned.value(i).tag != OPDOCK_TAG_LIST) continue;
    for (const opdock::ResultTensor& one : returned.list(i)) outputs.push_back(one);
  }
  std::vector<std::unique_ptr<Array>> found;
  for (size_t i = 0; i < outputs.size() && i < example.outputs.size(); ++i) {
    const opdock::ResultTensor& owned = outputs[i];
    const opdock_tensor& from = owned.get();
    const std::vector<int64_t> shape(from.shape, from.shape + from.ndim);
    Array& to = *found.emplace_back(std::make_unique<Array>(example.outputs[i]->type(), shape));
    const size_t bytes = static_cast<size_t>(to.numel() * owned.dtype().bytes());
    if (bytes == 0) continue;  // an empty tensor may have no memory
    if (from.device.type == OPDOCK_CPU) {
      std::memcpy(to.tensor()->data, from.data, bytes);
    } else {
      EXPECT_EQ(to_host(to.tensor()->data, from.data, bytes, nullptr), 0);
    }
  }
  EXPECT_EQ(found.size(), example.outputs.size());
  return found;
}

#ifdef __has_feature
constexpr bool kSanitized = __has_feature(address_sanitizer);
#elif defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

TEST_P(Examples, GiveOnTheGpuWhatTheyGiveOnTheCpu) {
  if (!kSanitized && !std::getenv("OPDOCK_TEST_NIGHTLY")) {
    GTEST_SKIP() << "for ./dev test --nightly, and for builds with a sanitizer: the grids run "
                    "these kernels too";
  }
  gpu_child(GetParam(), json::object(), [] {
    const std::string backend = is_amd(GetParam()) ? "rocm" : "cuda";
    // No plugin packs kernels of matrix products; they are compiled when they are needed.
    setenv("OPDOCK_JIT", "auto", 1);
    setenv("OPDOCK_JIT_KEEP", CODE, 1);
    const opdock::Runtime runtime;
    const opdock_test::Examples examples;
    int count = 0;
    for (const Example& example : examples.all()) {
      if (!is_for(example, backend)) continue;
      SCOPED_TRACE(example.plugin + "/" + example.op);
      const opdock::Function op = runtime.function(example.plugin + "/" + example.op);
      const Moved moved(example, op.info());
      const auto wanted = results(op, example, example.args);
      const std::vector<std::vector<double>> written = numbers_of(example.written);
      for (Array* array : example.written) array->fill(0);
      const size_t launches = events("launch").size();
      const auto there = results(op, example, moved.args);
      EXPECT_EQ(synchronize(nullptr), 0);
      EXPECT_EQ(events("launch").size() > launches, example.launches);
      moved.copy_back(example.written);
      if (example.writes_by_sums) {
        for (size_t i = 0; i < written.size(); ++i)
          expect_near(*example.written[i], written[i], "written argument " + std::to_string(i));
      } else {
        EXPECT_EQ(numbers_of(example.written), written);
      }
      ASSERT_EQ(there.size(), wanted.size());
      for (size_t output = 0; output < wanted.size(); ++output) {
        ASSERT_EQ(there[output]->shape(), wanted[output]->shape());
        expect_near(*there[output], numbers_of({wanted[output].get()})[0],
                    "output " + std::to_string(output));
      }
      ++count;
    }
    EXPECT_GT(count, 0) << "found no example of an op for " << backend;
    EXPECT_TRUE(findings().empty()) << findings().front();
  });
}

}  // namespace
}  // namespace softgpu_ops
