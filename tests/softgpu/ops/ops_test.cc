// Compares the plugins' ops on software GPUs, from C++ through the host, with their definitions in
// double. The plugins' Python tests cover more; these run each kernel's host part and the path to
// it under the sanitizers.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "gpu.h"
#include "plugins/row_cases.h"

namespace softgpu_ops {
namespace {

using opdock_test::Array;
using opdock_test::Type;
using opdock_test::Wanted;
using Rows = std::vector<std::vector<double>>;

class Ops : public SoftGpu {};
INSTANTIATE_TEST_SUITE_P(Soft, Ops, every_arch(), arch_name);

constexpr Type kTypes[] = {Type::kFloat32, Type::kFloat16, Type::kBFloat16};
// Row lengths for each path: one warp's registers, several loads a thread, one block per row, and
// more than a block's registers hold.
constexpr int64_t kLengths[] = {1, 33, 256, 1000, 9000};
constexpr int64_t kRows = 3;

size_t bytes_of(const Array& array) {
  return static_cast<size_t>(array.numel()) * (array.type() == Type::kFloat32 ? 4 : 2);
}

opdock::TensorView view(const Array& array, void* memory) {
  const opdock_dtype type = opdock_test::dtype_of(array.type());
  std::vector<int64_t> strides(array.shape().size(), 1);
  for (size_t i = strides.size(); i-- > 1;) strides[i - 1] = strides[i] * array.shape()[i];
  return {memory, opdock::Dtype(type), array.shape(), strides, device()};
}

// Returns the array's tensor on the device, copied in the default stream's order.
opdock::TensorView there(const Array& array) {
  void* const memory = new_memory(bytes_of(array));
  EXPECT_EQ(to_device(memory, const_cast<Array&>(array).tensor()->data, bytes_of(array), nullptr),
            0);
  return view(array, memory);
}

std::unique_ptr<Array> filled(Type type, std::vector<int64_t> shape, uint64_t seed) {
  auto array = std::make_unique<Array>(type, std::move(shape));
  array->fill(seed);
  return array;
}

// Copies back an output that the host has allocated.
std::unique_ptr<Array> back(const opdock::ResultTensor& tensor, Type type) {
  const opdock_tensor& from = tensor.get();
  auto array =
      std::make_unique<Array>(type, std::vector<int64_t>(from.shape, from.shape + from.ndim));
  EXPECT_EQ(from.device.type, device().type);
  EXPECT_EQ(to_host(array->tensor()->data, from.data, bytes_of(*array), nullptr), 0);
  return array;
}

Rows rows_of(const Array& x) {
  const int64_t length = x.shape().back();
  Rows rows(static_cast<size_t>(x.numel() / length));
  for (int64_t i = 0; i < x.numel(); ++i) rows[static_cast<size_t>(i / length)].push_back(x.get(i));
  return rows;
}

// ---- softmax

std::vector<Wanted> softmax_of(const Array& x, double scale, const Array* mask, bool causal) {
  std::vector<Wanted> wanted;
  Rows rows = rows_of(x);
  const size_t length = rows[0].size();
  for (size_t row = 0; row < rows.size(); ++row) {
    double sum = 0, most = -INFINITY;
    for (size_t i = 0; i < length; ++i) {
      double& score = rows[row][i];
      score *= scale;
      if (mask) score += mask->get(static_cast<int64_t>(i));
      if (causal && i > row + length - rows.size()) score = -INFINITY;
      most = std::max(most, score);
    }
    for (double& score : rows[row]) sum += score = std::exp(score - most);
    for (const double weight : rows[row]) wanted.push_back({weight / sum, weight / sum});
  }
  return wanted;
}

TEST_P(Ops, Softmax) {
  gpu_child(GetParam(), json::object(), [] {
    opdock::Runtime runtime;
    const opdock::Function softmax = runtime.function("softmax");
    for (const Type type : kTypes) {
      for (const int64_t length : kLengths) {
        const auto x = filled(type, {kRows, length}, 1), mask = filled(type, {length}, 2);
        const opdock::TensorView moved = there(*x), moved_mask = there(*mask);
        const bool causal = length >= kRows;
        const std::string what = opdock_test::name_of(type) + ", " + std::to_string(length);
        const auto plain = back(softmax(moved)[0], type);
        // The tolerance is half an ulp of the result, plus the errors of the exponential and the
        // sum in float.
        const double absolute = opdock_test::half_smallest(type) + 1e-44;
        opdock_test::expect_close(*plain, softmax_of(*x, 1, nullptr, false), 3e-6, absolute, what);
        const auto masked =
            back(softmax(moved, opdock::named("scale", 0.5), opdock::named("mask", moved_mask),
                         opdock::named("causal", causal))[0],
                 type);
        opdock_test::expect_close(*masked, softmax_of(*x, 0.5, mask.get(), causal), 3e-6, absolute,
                                  what + ", masked");
      }
    }
    EXPECT_TRUE(findings().empty()) << findings().front();
  });
}

// ---- layer_norm

std::vector<Wanted> layer_norm_of(const Array& x, const Array* weight, const Array* bias) {
  std::vector<Wanted> wanted;
  for (const std::vector<double>& row : rows_of(x)) {
    const double n = static_cast<double>(row.size());
    double mean = 0, variance = 0;
    for (const double value : row) mean += value / n;
    for (const double value : row) variance += (value - mean) * (value - mean) / n;
    const double deviation = std::sqrt(variance + 1e-5);
    for (size_t i = 0; i < row.size(); ++i) {
      const int64_t at = static_cast<int64_t>(i);
      const double w = weight ? weight->get(at) : 1, b = bias ? bias->get(at) : 0;
      const double y = (row[i] - mean) / deviation;
      wanted.push_back({y * w + b, std::fabs(y * w) + std::fabs(b) +
                                       std::fabs(w) * (1 + std::fabs(mean) / deviation)});
    }
  }
  return wanted;
}

void expect_norm(const Array& found, const std::vector<Wanted>& wanted, const std::string& what) {
  opdock_test::expect_close(found, wanted, 8 * opdock_test::half_ulp(Type::kFloat32),
                            opdock_test::half_smallest(found.type()), what);
}

TEST_P(Ops, LayerNorm) {
  gpu_child(GetParam(), json::object(), [] {
    opdock::Runtime runtime;
    const opdock::Function layer_norm = runtime.function("layer_norm");
    const opdock::Function add_layer_norm = runtime.function("add_layer_norm");
    for (const Type type : kTypes) {
      for (const int64_t length : kLengths) {
        const auto x = filled(type, {kRows, length}, 3),
                   residual = filled(type, {kRows, length}, 4);
        const auto weight = filled(type, {length}, 5), bias = filled(type, {length}, 6);
        const opdock::TensorView at_x = there(*x), at_weight = there(*weight);
        const opdock::TensorView at_bias = there(*bias), at_residual = there(*residual);
        const std::string what = opdock_test::name_of(type) + ", " + std::to_string(length);
        const auto plain = back(layer_norm(at_x)[0], type);
        expect_norm(*plain, layer_norm_of(*x, nullptr, nullptr), what);
        const auto affine = back(layer_norm(at_x, at_weight, at_bias)[0], type);
        expect_norm(*affine, layer_norm_of(*x, weight.get(), bias.get()), what + ", affine");

        Array sum(type, {kRows, length});  // rounded first to float, then to the type
        for (int64_t i = 0; i < sum.numel(); ++i) {
          sum.set(i, opdock_test::round_to(Type::kFloat32, x->get(i) + residual->get(i)));
        }
        const auto both = add_layer_norm(at_x, at_residual, at_weight, at_bias);
        ASSERT_EQ(both.size(), 2u);
        const auto first = back(both[0], type), second = back(both[1], type);
        expect_norm(*first, layer_norm_of(sum, weight.get(), bias.get()), what + ", sum's");
        for (int64_t i = 0; i < sum.numel(); ++i) ASSERT_EQ(second->get(i), sum.get(i)) << what;
      }
    }
    EXPECT_TRUE(findings().empty()) << findings().front();
  });
}

// ---- noop, and refusals before a launch

TEST_P(Ops, NoopLaunchesItsKernel) {
  gpu_child(GetParam(), json::object(), [] {
    opdock::Runtime runtime;
    const Array x(Type::kFloat32, {8});
    runtime.function("noop_launch")(view(x, new_memory(32)));
    EXPECT_EQ(synchronize(nullptr), 0);
    ASSERT_EQ(events("launch").size(), 1u);
    const std::string name = events("launch")[0]["function"];
    EXPECT_NE(name.find("noop"), name.npos) << name;
    EXPECT_TRUE(findings().empty()) << findings().front();
  });
}

TEST_P(Ops, BadArgumentsAreRefusedAndNothingIsLaunched) {
  gpu_child(GetParam(), json::object(), [] {
    opdock::Runtime runtime;
    const opdock::Function layer_norm = runtime.function("layer_norm");
    const Array x(Type::kFloat32, {2, 8}), short_weight(Type::kFloat32, {7});
    const Array half_weight(Type::kFloat16, {8});
    const auto text = [&](const opdock::TensorView& weight) -> std::string {
      try {
        layer_norm(view(x, new_memory(64)), weight);
      } catch (const opdock::Error& error) {
        return error.what();
      }
      return "nothing was thrown";
    };
    for (const Array* weight : {&short_weight, &half_weight}) {
      const std::string said = text(view(*weight, new_memory(32)));
      EXPECT_NE(said.find("'weight'"), said.npos) << said;
    }
    // This weight is in CPU memory.
    std::vector<float> values(8, 1);
    const std::string said = text(opdock::TensorView(values.data(), {8}));
    EXPECT_NE(said.find("cpu"), said.npos) << said;
    EXPECT_TRUE(events("launch").empty());
  });
}

}  // namespace
}  // namespace softgpu_ops
