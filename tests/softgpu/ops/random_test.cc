// Tests ops that draw random numbers on software GPUs, from C++: what a graph draws at each launch,
// and tensors with more elements than a launch has threads.
// SPDX-License-Identifier: Apache-2.0
#include "gpu.h"

namespace softgpu_ops {
namespace {

constexpr uint64_t kOffset = 3;

opdock_generator generator(uint64_t seed, const void* device_seed = nullptr) {
  return {sizeof(opdock_generator), 0, seed, kOffset, static_cast<const uint64_t*>(device_seed)};
}

// Returns which of `count` elements dropout keeps on the CPU, whose numbers come from plugin.h.
std::vector<char> kept_on_the_cpu(const opdock::Function& dropout, int64_t count, uint64_t seed) {
  const std::vector<float> x(static_cast<size_t>(count), 1.0f);
  opdock_generator from = generator(seed);
  const opdock::ResultList results =
      dropout(opdock::TensorView(x.data(), {count}), 0.3, opdock::named("generator", &from));
  const bool* const mask = results[1].data<bool>();
  EXPECT_EQ(from.offset, kOffset + static_cast<uint64_t>(count));
  return {mask, mask + count};
}

// A call's tensors on the device; x is all ones.
struct Memory {
  explicit Memory(int64_t elements) : count(elements) {
    const std::vector<float> ones(static_cast<size_t>(count), 1.0f);
    EXPECT_EQ(to_device(x, ones.data(), ones.size() * sizeof(float), nullptr), 0);
    EXPECT_EQ(synchronize(nullptr), 0);
  }
  void call(const opdock::Function& dropout, const opdock_call_options& options) const {
    dropout.into({{static_cast<float*>(y), {count}, device()},
                  {static_cast<bool*>(mask), {count}, device()}},
                 &options, opdock::TensorView(static_cast<const float*>(x), {count}, device()),
                 0.3);
  }
  std::vector<char> kept(void* stream) const {
    std::vector<char> found(static_cast<size_t>(count));
    EXPECT_EQ(to_host(found.data(), mask, found.size(), stream), 0);
    return found;
  }

  int64_t count;
  void* const x = new_memory(static_cast<size_t>(count) * sizeof(float));
  void* const y = new_memory(static_cast<size_t>(count) * sizeof(float));
  void* const mask = new_memory(static_cast<size_t>(count));
};

TEST_P(SoftGpu, AGraphDrawsWithTheSeedThatIsThereWhenItIsLaunched) {
  gpu_child(GetParam(), json::object(), [] {
    const opdock::Runtime runtime;
    const opdock::Function dropout = runtime.function("dropout");
    dropout.prepare(device());
    void* const stream = new_stream();
    const Memory memory(1001);
    void* const seed = new_memory(sizeof(uint64_t));
    opdock_generator from = generator(0, seed);
    opdock_call_options options = on(stream);
    options.generator = &from;
    ASSERT_EQ(begin_capture(stream), 0);
    memory.call(dropout, options);
    void* const graph = end_capture(stream);
    EXPECT_EQ(from.offset, kOffset + 1001) << "the next call's numbers are others";
    std::vector<std::vector<char>> all;
    for (const uint64_t now : {uint64_t{5}, uint64_t{6} << 40, uint64_t{5}}) {
      ASSERT_EQ(to_device(seed, &now, sizeof now, stream), 0);
      ASSERT_EQ(launch_graph(graph, stream), 0);
      all.push_back(memory.kept(stream));
      EXPECT_EQ(all.back(), kept_on_the_cpu(dropout, 1001, now)) << now;
    }
    EXPECT_NE(all[0], all[1]);
    EXPECT_EQ(all[0], all[2]);
    EXPECT_TRUE(findings().empty()) << findings().front();
  });
}

TEST_P(SoftGpu, AGraphWithASeedOfTheHostIsRefused) {
  gpu_child(GetParam(), json::object(), [] {
    const opdock::Runtime runtime;
    const opdock::Function dropout = runtime.function("dropout");
    dropout.prepare(device());
    void* const stream = new_stream();
    const Memory memory(8);
    opdock_generator from = generator(1);
    opdock_call_options options = on(stream);
    options.generator = &from;
    ASSERT_EQ(begin_capture(stream), 0);
    try {
      memory.call(dropout, options);
      ADD_FAILURE() << "each launch of the graph would draw the same numbers";
    } catch (const opdock::Error& error) {
      EXPECT_EQ(error.status(), OPDOCK_UNSUPPORTED) << error.what();
      EXPECT_NE(std::string(error.what()).find("device_seed"), std::string::npos) << error.what();
    }
    EXPECT_EQ(from.offset, kOffset);
    EXPECT_TRUE(events("launch").empty());
  });
}

TEST_P(SoftGpu, ThreadsThatHaveSeveralElementsDrawEachsOwnNumbers) {
  const json small = {{"arch", GetParam()}, {"multiprocessors", 1}};
  gpu_child(GetParam(), {{"gpus", json::array({small})}}, [] {
    const opdock::Runtime runtime;
    const opdock::Function dropout = runtime.function("dropout");
    const Memory memory(70'001);  // a launch has threads for 32,768 of them
    opdock_generator from = generator(7);
    opdock_call_options options = on(nullptr);
    options.generator = &from;
    memory.call(dropout, options);
    EXPECT_EQ(memory.kept(nullptr), kept_on_the_cpu(dropout, 70'001, 7));
    EXPECT_TRUE(findings().empty()) << findings().front();
  });
}

}  // namespace
}  // namespace softgpu_ops
