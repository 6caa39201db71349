// Checks the requirements that only a plugin can break, with the plugins' examples, for every op of
// this tree that runs on the CPU.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "examples.h"
#include "support/tree_plugins.h"

namespace opdock_test {
namespace {

// An example together with what plugin.toml declares about its op.
struct DeclaredExample : Example {
  bool has_kernels;
  std::set<std::string> devices;
};

const TreePlugin* find_plugin(const std::string& name) {
  const std::vector<TreePlugin>& all = tree_plugins();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const TreePlugin& p) { return p.name == name; });
  return found == all.end() ? nullptr : &*found;
}

// Returns the examples of plugins that were built; a plugin that needs nvcc or hipcc is not built
// where that compiler is missing.
std::vector<DeclaredExample> built(const Examples& examples) {
  std::vector<DeclaredExample> found;
  for (const Example& example : examples.all()) {
    const TreePlugin* const plugin = find_plugin(example.plugin);
    EXPECT_NE(plugin, nullptr) << "an example of the plugin " << example.plugin;
    if (plugin == nullptr) continue;
    const std::string file = std::string(OPDOCK_TEST_PLUGINS "/") + plugin->name + ".so";
    if (plugin->needs_toolkit && !std::filesystem::exists(file)) continue;
    const auto op = std::find_if(plugin->ops.begin(), plugin->ops.end(),
                                 [&](const TreeOp& o) { return o.name == example.op; });
    EXPECT_TRUE(op != plugin->ops.end()) << "an example of " << example.plugin << "/" << example.op;
    if (op != plugin->ops.end()) found.push_back({example, plugin->has_kernels, op->devices});
  }
  return found;
}

TEST(PluginRequirements, EveryOpHasAnExample) {
  const Examples examples;
  for (const TreePlugin& plugin : tree_plugins()) {
    for (const TreeOp& op : plugin.ops) {
      if (!op.devices.contains("cpu")) continue;
      EXPECT_TRUE(std::any_of(examples.all().begin(), examples.all().end(),
                              [&](const Example& example) {
                                return example.plugin == plugin.name && example.op == op.name;
                              }))
          << "found no example of " << op.name << ", wanted one in plugins/" << plugin.name
          << "/test_examples.cc, as tests/plugins/examples.h shows";
    }
  }
}

// OPDOCK-P-1: plan refuses arguments that run could not survive, reads no data of tensors without
// data, calls no host function that reaches a device, and gives the same plan for the same
// arguments.
TEST(PluginRequirements, PlanChecksEverythingAndTouchesNothing) {
  const Examples examples;
  for (const DeclaredExample& example : built(examples)) {
    SCOPED_TRACE(example.op);
    const Op op(example.plugin, example.op);
    if (op.descriptor().plan == nullptr) continue;  // a formula: the host plans it
    for (const int32_t device : {OPDOCK_CPU, OPDOCK_CUDA}) {
      if (!example.devices.contains(device == OPDOCK_CPU ? "cpu" : "cuda")) continue;
      const uint8_t* const places = op.descriptor().arg_devices;
      const ChangedTensors shapes(example.args, [&](size_t param, opdock_tensor* tensor,
                                                    opdock_value* value) {
        tensor->data = reinterpret_cast<void*>(1);  // must not be read; its alignment is ignored
        if (places == nullptr || places[param] != OPDOCK_ON_CPU) tensor->device.type = device;
        value->flags = OPDOCK_VALUE_NO_DATA;
      });
      Reach reach;
      const size_t count = example.outputs.size();
      const Result first = op.plan(shapes.args, device, &reach, count),
                   second = op.plan(shapes.args, device, &reach, count);
      EXPECT_EQ(first.status, OPDOCK_OK) << first.text;
      EXPECT_TRUE(reach.empty()) << reach.front();
      ASSERT_EQ(first.planned.size(), second.planned.size());
      ASSERT_EQ(first.planned.size(), example.outputs.size());
      for (size_t i = 0; i < first.planned.size(); ++i)
        EXPECT_EQ(std::memcmp(&first.planned[i], &second.planned[i], sizeof(opdock_output)), 0);
    }
    for (size_t i = 0; i < example.invalid_args.size(); ++i) {
      const Result refused = op.plan(example.invalid_args[i]);
      EXPECT_NE(refused.status, OPDOCK_OK) << "invalid call " << i;
      EXPECT_NE(refused.text.find("argument '"), std::string::npos) << refused.text;
    }
  }
}

// Returns how many elements of an output the op's run has not written. A byte that it has written
// may be the mark of an unwritten one: a run over ones then writes it again.
int64_t unwritten(const Op& op, const DeclaredExample& example, Array* output) {
  if (output->unwritten() == 0 || dtype_of(output->type()).bits != 8) return output->unwritten();
  const double mark = Array(output->type(), {1}).get(0);
  std::vector<int64_t> marked;
  for (int64_t i = 0; i < output->numel(); ++i) {
    if (output->get(i) == mark) marked.push_back(i);
    output->set(i, 1);
  }
  EXPECT_EQ(op.call(example.args, example.outputs).status, OPDOCK_OK);
  return std::count_if(marked.begin(), marked.end(),
                       [&](int64_t i) { return output->get(i) != mark; });
}

// OPDOCK-P-3: run writes every element of every output and no other byte, whatever the output's
// strides; on a GPU it launches on the call's own stream. The host table offers neither a workspace
// nor access to the driver, so an op that uses them without the flag fails here. Kernels that nvcc
// or hipcc compiled into the plugin launch without the host, so they are not recorded.
TEST(PluginRequirements, RunWritesEveryElementOnTheCallsStream) {
  const Examples examples;
  for (const DeclaredExample& example : built(examples)) {
    SCOPED_TRACE(example.op);
    const Op op(example.plugin, example.op);
    if (op.descriptor().run == nullptr) continue;  // a formula: the host runs it
    if (example.devices.contains("cpu")) {
      const Result result = op.call(example.args, example.outputs);
      ASSERT_EQ(result.status, OPDOCK_OK) << result.text;
      if (opdock_object* const object = result.value.as.object;
          result.value.tag == OPDOCK_TAG_OBJECT)
        object->release(object);
      for (Array* output : example.outputs) {
        EXPECT_EQ(unwritten(op, example, output), 0);
        EXPECT_EQ(output->gaps_changed(), 0);
      }
      for (const Array* written : example.written) {
        EXPECT_EQ(written->unwritten(), 0);
        EXPECT_EQ(written->gaps_changed(), 0);
      }
    }
    if (!example.has_kernels || !example.devices.contains("cuda") || example.drives) continue;
    void* const stream = reinterpret_cast<void*>(0x5eed);
    std::vector<Launch> launches;
    const Result recorded = op.record(example.args, example.outputs, 32, &launches, stream);
    EXPECT_EQ(recorded.status, OPDOCK_OK) << recorded.text;
    EXPECT_EQ(launches.empty(), !example.launches);
    for (const Launch& launch : launches) EXPECT_EQ(launch.stream, stream);
  }
}

}  // namespace
}  // namespace opdock_test
