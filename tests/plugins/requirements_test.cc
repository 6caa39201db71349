// The requirements on plugins that only a plugin can break, of every op of this tree that runs on
// the CPU: each row is a call of one.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstring>
#include <deque>

#include "harness.h"

namespace opdock_test {
namespace {

// A call that is right; `spoilt` are the same with one argument that is wrong, each in a way that
// run could not survive.
struct Example {
  std::string plugin, op;
  std::vector<opdock_value> args;
  std::vector<Array*> outputs;  // as planned, with gaps between their rows
  std::vector<std::vector<opdock_value>> spoilt;
};

// The arrays that examples are made of.
class Examples {
 public:
  Examples() {
    const opdock_value rows = array({4, 6}), columns = array({4, 6}, {1, 4}), vector = array({6}),
                       shorter = array({5}), other = array({6, 4}), half = array({4, 6}, {}, true);
    const opdock_value one = number(1), eps = number(1e-5), off = boolean(false);
    all.push_back({"softmax",
                   "softmax",
                   {rows, one, none(), off},
                   {gapped()},
                   {{columns, one, none(), off},
                    {rows, one, columns, off},
                    {rows, one, shorter, off},
                    {rows, one, half, off},
                    {odd(), one, none(), off}}});
    all.push_back({"norm",
                   "layer_norm",
                   {rows, vector, vector, eps},
                   {gapped()},
                   {{columns, vector, vector, eps},
                    {rows, shorter, vector, eps},
                    {rows, vector, shorter, eps},
                    {rows, half, none(), eps}}});
    all.push_back({"norm",
                   "add_layer_norm",
                   {rows, rows, vector, none(), eps},
                   {gapped(), gapped()},
                   {{columns, rows, vector, none(), eps},
                    {rows, columns, vector, none(), eps},
                    {rows, other, vector, none(), eps},
                    {rows, half, vector, none(), eps}}});
    all.push_back({"noop", "noop", {rows}, {}, {}});
    all.push_back({"noop", "noop_launch", {rows}, {}, {}});
  }
  std::vector<Example> all;

 private:
  opdock_value array(std::vector<int64_t> shape, std::vector<int64_t> strides = {},
                     bool half = false) {
    Array& made = arrays_.emplace_back(half ? Type::kFloat16 : Type::kFloat32, std::move(shape),
                                       std::move(strides));
    made.fill(arrays_.size());
    return made.value();
  }
  opdock_value odd() {
    Array& made = arrays_.emplace_back(Type::kFloat32, std::vector<int64_t>{4, 6});
    made.tensor()->byte_offset = 2;
    return made.value();
  }
  Array* gapped() {
    return &arrays_.emplace_back(Type::kFloat32, std::vector<int64_t>{4, 6},
                                 std::vector<int64_t>{9, 1});
  }
  std::deque<Array> arrays_;
};

// OPDOCK-P-1: refuses what run could not survive, reads no data where there is none, calls nothing
// of the host's that reaches a device, and answers the same for the same arguments.
TEST(PluginRequirements, PlanChecksEverythingAndTouchesNothing) {
  for (const Example& example : Examples().all) {
    SCOPED_TRACE(example.op);
    const Op op(example.plugin, example.op);
    for (const int32_t device : {OPDOCK_CPU, OPDOCK_CUDA}) {
      std::vector<opdock_tensor> shapes(example.args.size());
      std::vector<opdock_value> args = example.args;
      for (size_t i = 0; i < args.size(); ++i) {
        if (args[i].tag != OPDOCK_TAG_TENSOR) continue;
        shapes[i] = *args[i].as.tensor;
        shapes[i].data = reinterpret_cast<void*>(1);  // not to be read, nor its alignment to count
        shapes[i].device.type = device;
        args[i].as.tensor = &shapes[i];
        args[i].flags = OPDOCK_VALUE_NO_DATA;
      }
      Reach reach;
      const Result first = op.plan(args, device, &reach), second = op.plan(args, device, &reach);
      EXPECT_EQ(first.status, OPDOCK_OK) << first.text;
      EXPECT_TRUE(reach.empty()) << reach.front();
      ASSERT_EQ(first.planned.size(), second.planned.size());
      ASSERT_EQ(first.planned.size(), example.outputs.size());
      EXPECT_EQ(std::memcmp(first.planned.data(), second.planned.data(),
                            first.planned.size() * sizeof(opdock_output)),
                0);
    }
    for (size_t i = 0; i < example.spoilt.size(); ++i) {
      const Result refused = op.plan(example.spoilt[i]);
      EXPECT_NE(refused.status, OPDOCK_OK) << "spoilt call " << i;
      EXPECT_NE(refused.text.find("argument '"), std::string::npos) << refused.text;
    }
  }
}

// OPDOCK-P-3: writes every element of every output and nothing beside them, whatever its strides;
// on a GPU launches on the call's own stream. The host's table has no workspace, and no way round
// it to a driver: an op that asks for them without being flagged ends here.
TEST(PluginRequirements, RunWritesEveryElementOnTheCallsStream) {
  for (const Example& example : Examples().all) {
    SCOPED_TRACE(example.op);
    const Op op(example.plugin, example.op);
    const Result result = op.call(example.args, example.outputs);
    ASSERT_EQ(result.status, OPDOCK_OK) << result.text;
    for (const Array* output : example.outputs) {
      EXPECT_EQ(output->unwritten(), 0);
      EXPECT_EQ(output->gaps_changed(), 0);
    }
    void* const stream = reinterpret_cast<void*>(0x5eed);
    std::vector<Launch> launches;
    const Result recorded = op.record(example.args, example.outputs, 32, &launches, stream);
    EXPECT_EQ(recorded.status, OPDOCK_OK) << recorded.text;
    EXPECT_EQ(launches.empty(), example.op == "noop");
    for (const Launch& launch : launches) EXPECT_EQ(launch.stream, stream);
  }
}

}  // namespace
}  // namespace opdock_test
