// Tests which kernels attention and append_kv launch, without a GPU.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "harness.h"
#include "recorded_attention.h"

namespace opdock_test::attention_plugin {
namespace {

constexpr uint32_t kShared = 227 << 10;  // limit of an H200's block
const RecordedGpu kHopper = {32, OPDOCK_CUDA, 9, 132, kShared};
const RecordedGpu kAda = {32, OPDOCK_CUDA, 8, 128, 99 << 10};
const RecordedGpu kTuring = {32, OPDOCK_CUDA, 7, 72, 64 << 10};
const RecordedGpu kAmd = {64, OPDOCK_ROCM, 0, 104, 64 << 10};
constexpr Type kTypes[] = {Type::kFloat32, Type::kFloat16, Type::kBFloat16};

struct Shape {
  int64_t batch, queries, heads, kv_heads, keys, size;
};
constexpr Shape kPromptShape = {2, 300, 8, 8, 300, 64}, kTokenShape = {2, 1, 8, 8, 100, 64};

// Returns the launches of attention; odd: how many elements q is past an aligned address.
std::vector<Launch> launches_of(Type type, const Shape& s, const RecordedGpu& gpu, int odd = 0,
                                bool has_bytes = false) {
  static const Op attention("attention", "attention");
  const Type cache = has_bytes ? Type::kInt8 : type;
  Array q(type, {s.batch, s.queries, s.heads, s.size}, {}, odd), out(type, q.shape());
  Array k(cache, {s.batch, s.keys, s.kv_heads, s.size});
  Array scale(Type::kFloat32, {s.batch, s.keys, s.kv_heads});
  const opdock_value scales = has_bytes ? scale.value() : none();
  std::vector<Launch> launches;
  const Result result =
      attention.record({q.value(), k.value(), k.value(), none(), none(), none(), none(), scales,
                        scales, none(), boolean(false), integer(0)},
                       {&out}, gpu, &launches);
  EXPECT_EQ(result.status, OPDOCK_OK) << result.text;
  EXPECT_EQ(result.workspace_bytes != 0, launches.size() == 2) << "parts are merged by a kernel";
  return launches;
}

// Returns how many kernels attention launches on a GPU whose host may have the service.
size_t served_launches(Type type, const Shape& s, bool causal, int64_t window = 0,
                       bool has_lengths = false, const RecordedGpu& gpu = kHopper) {
  static const Op attention("attention", "attention");
  Array q(type, {s.batch, s.queries, s.heads, s.size}), out(type, q.shape());
  Array k(type, {s.batch, s.keys, s.kv_heads, s.size}), lengths(Type::kInt32, {s.batch});
  std::vector<Launch> launches;
  const Result result = attention.record(
      {q.value(), k.value(), k.value(), has_lengths ? lengths.value() : none(), none(), none(),
       none(), none(), none(), none(), boolean(causal), integer(window)},
      {&out}, gpu, &launches);
  EXPECT_EQ(result.status, OPDOCK_OK) << result.text;
  return launches.size();
}

std::string first_kernel(Type type, const Shape& shape, const RecordedGpu& gpu, int odd = 0,
                         bool has_bytes = false) {
  const std::string name = launches_of(type, shape, gpu, odd, has_bytes).at(0).kernel;
  return name.substr(0, name.find('<'));
}

TEST(AttentionLaunches, PromptsTakeTensorCores) {
  for (const Type type : kTypes) {
    EXPECT_EQ(first_kernel(type, kPromptShape, kHopper), "attention::prompt");
    for (const RecordedGpu& gpu : {kTuring, kAmd})
      EXPECT_EQ(first_kernel(type, kPromptShape, gpu), "attention::plain");
    EXPECT_EQ(first_kernel(type, kPromptShape, kHopper, 1), "attention::plain");  // misaligned
  }
}

TEST(AttentionLaunches, LongPromptsAskTheHostsService) {
  const Shape longer = {2, 300, 8, 2, 400, 64};
  RecordedAttention service;
  EXPECT_EQ(served_launches(Type::kFloat16, longer, true), 0u);
  ASSERT_EQ(service.ran.size(), 1u);
  const opdock_attention& ran = service.ran[0];
  EXPECT_EQ(ran.flags, OPDOCK_ATTENTION_CAUSAL | OPDOCK_ATTENTION_BOTTOM_RIGHT);
  EXPECT_EQ(ran.heads, 8);
  EXPECT_EQ(ran.kv_heads, 2);
  EXPECT_EQ(ran.queries, 300);
  EXPECT_EQ(ran.keys, 400);
  EXPECT_EQ(ran.size, 64);
  EXPECT_EQ(ran.scale, 0.125f);
  EXPECT_EQ(ran.k.row_stride, 400 * 2 * 64);
  EXPECT_EQ(ran.k.head_stride, 64);
  EXPECT_EQ(ran.k.token_stride, 2 * 64);
  EXPECT_NE(ran.out.data, nullptr);
  EXPECT_EQ(served_launches(Type::kBFloat16, kPromptShape, true, 100), 0u);
  EXPECT_EQ(service.ran.back().window, 100);
}

TEST(AttentionLaunches, OtherCallsDoNotAskTheService) {
  RecordedAttention service;
  EXPECT_EQ(served_launches(Type::kFloat32, kPromptShape, false), 1u);
  EXPECT_EQ(served_launches(Type::kFloat16, {2, 255, 8, 8, 300, 64}, false), 1u);
  EXPECT_EQ(served_launches(Type::kFloat16, {2, 400, 8, 8, 300, 64}, true), 1u);
  EXPECT_EQ(served_launches(Type::kFloat16, {2, 300, 8, 8, 400, 64}, true, 100), 1u);
  EXPECT_EQ(served_launches(Type::kFloat16, kPromptShape, true, 0, true), 1u);
  EXPECT_EQ(service.planned, 0);
}

TEST(AttentionLaunches, HowLongAPromptMustBe) {
  const auto served = [](int64_t queries, const RecordedGpu& gpu) {
    return served_launches(Type::kFloat16, {1, queries, 8, 8, queries, 64}, true, 0, false, gpu) ==
           0;
  };
  RecordedAttention service;
  EXPECT_TRUE(served(256, kHopper));
  EXPECT_FALSE(served(255, kHopper));
  EXPECT_TRUE(served(512, kAda));
  EXPECT_FALSE(served(511, kAda));
  for (const RecordedGpu& gpu : {kTuring, kAmd}) EXPECT_FALSE(served(4096, gpu));
  // A measured answer comes first.
  const auto measured = [&](int32_t way, int64_t queries) {
    const Answer answer(way);
    return served(queries, kHopper);
  };
  EXPECT_TRUE(measured(1, 64));
  EXPECT_FALSE(measured(1, 63));
  EXPECT_FALSE(measured(0, 4096));
}

// Masks and biases may leave a query without keys, where the service gives NaN; slopes do not.
TEST(AttentionLaunches, TheServiceGetsSlopes) {
  static const Op attention("attention", "attention");
  RecordedAttention service;
  const Type type = Type::kFloat16;
  Array q(type, {2, 300, 8, 64}), out(type, q.shape()), slopes(Type::kFloat32, {8});
  Array bias(type, {1, 8, 300, 300});
  const auto launches = [&](const opdock_value& mask, const opdock_value& added,
                            const opdock_value& by_distance) {
    std::vector<Launch> found;
    const Result result =
        attention.record({q.value(), q.value(), q.value(), none(), mask, added, by_distance, none(),
                          none(), none(), boolean(true), integer(0)},
                         {&out}, kHopper, &found);
    EXPECT_EQ(result.status, OPDOCK_OK) << result.text;
    return found.size();
  };
  EXPECT_EQ(launches(none(), none(), slopes.value()), 0u);
  ASSERT_EQ(service.ran.size(), 1u);
  const opdock_attention& ran = service.ran[0];
  EXPECT_NE(ran.flags & OPDOCK_ATTENTION_SLOPES, 0u);
  EXPECT_NE(ran.slopes, nullptr);
  EXPECT_EQ(ran.bias, nullptr);
  EXPECT_EQ(launches(bias.value(), none(), none()), 1u);
  EXPECT_EQ(launches(none(), bias.value(), none()), 1u);
  EXPECT_EQ(service.ran.size(), 1u);
}

TEST(AttentionLaunches, OwnKernelsServeWhereTheServiceDeclines) {
  RecordedAttention service;
  service.runs = false;  // as for results that have other strides than planned
  EXPECT_EQ(served_launches(Type::kFloat16, kPromptShape, true), 1u);
  service.plans = false;
  EXPECT_EQ(served_launches(Type::kFloat16, kPromptShape, true), 1u);
  EXPECT_EQ(service.planned, 2);
}

// A warp has sixteen rows; the rows that a block has according to its threads cover all rows.
TEST(AttentionLaunches, PromptsCoverEveryRow) {
  for (const Type type : kTypes)
    for (const int64_t queries : {17, 64, 65, 128, 129, 1000})
      for (const int64_t group : {1, 4}) {
        const Shape shape = {3, queries, 8, 8 / group, 2000, 128};
        const opdock_launch how = launches_of(type, shape, kHopper).at(0).how;
        const int64_t each = how.block[0] / 2, rows = queries * group;
        EXPECT_GE(how.grid[0] * each, rows);
        EXPECT_LT((how.grid[0] - 1) * each, rows);
        EXPECT_EQ(how.grid[1], 8 / group);
        EXPECT_EQ(how.grid[2], 3u);
      }
}

// Two stages of keys and values are needed; if a block has no room for them, another kernel is
// used.
TEST(AttentionLaunches, SharedMemoryIsWhatTheGpuHas) {
  for (const RecordedGpu& gpu : {kHopper, kAda})
    for (const Type type : kTypes)
      for (const int64_t size : {64, 128, 256}) {
        const Shape shape = {1, 100, 4, 4, 100, size};
        for (const Launch& launch : launches_of(type, shape, gpu))
          EXPECT_LE(launch.how.shared_bytes, gpu.max_shared_bytes) << launch.kernel;
      }
  const Shape wide = {1, 100, 4, 4, 100, 256};
  EXPECT_EQ(first_kernel(Type::kFloat16, wide, kHopper), "attention::prompt");
  EXPECT_EQ(first_kernel(Type::kFloat16, wide, kAda), "attention::decode");
  EXPECT_EQ(first_kernel(Type::kFloat32, wide, kHopper), "attention::plain");
}

TEST(AttentionLaunches, TokensTakeTensorCoresOf16Bits) {
  for (const Type type : {Type::kFloat16, Type::kBFloat16}) {
    EXPECT_EQ(first_kernel(type, kTokenShape, kHopper), "attention::decode");
    EXPECT_EQ(first_kernel(type, kTokenShape, kHopper, 0, true), "attention::decode");
  }
  const std::string one = launches_of(Type::kFloat32, kTokenShape, kHopper).at(0).kernel;
  EXPECT_TRUE(one.starts_with("attention::plain<") && one.ends_with(", 1>")) << one;
  // Queries that share keys make several rows.
  const Shape grouped = {2, 1, 8, 2, 100, 64};
  const std::string some = launches_of(Type::kFloat32, grouped, kHopper).at(0).kernel;
  EXPECT_TRUE(some.ends_with(", 8>")) << some;
}

// Keys by columns are read in place, with a block per row; keys without whole vectors are read
// element by element.
TEST(AttentionLaunches, KeysByColumns) {
  static const Op attention("attention", "attention");
  for (const Type type : kTypes)
    for (const RecordedGpu& gpu : {kHopper, kTuring, kAmd})
      for (const int64_t keys : {1024, 1023}) {
        Array q(type, {3, 2, 8, 64}), out(type, q.shape()), v(type, {3, keys, 4, 64});
        Array k(type, v.shape(), {4 * 64 * keys, 1, 64 * keys, keys});
        std::vector<Launch> launches;
        const Result result =
            attention.record({q.value(), k.value(), v.value(), none(), none(), none(), none(),
                              none(), none(), none(), boolean(true), integer(0)},
                             {&out}, gpu, &launches);
        ASSERT_EQ(result.status, OPDOCK_OK) << result.text;
        const bool fits = keys % 8 == 0;
        const std::string name = launches.at(0).kernel;
        EXPECT_TRUE(name.starts_with(fits ? "attention::columns<" : "attention::plain<")) << name;
        const opdock_launch& how = launches[0].how;
        EXPECT_EQ(how.grid[0] % (fits ? 4 : 1), 0u) << "two queries of two heads";
        EXPECT_EQ(how.grid[1], 4u);
        EXPECT_EQ(how.grid[2], 3u);
      }
}

// Prompts with keys by columns use tensor cores for 16 bits, if everything consists of whole
// vectors and shared memory has room.
TEST(AttentionLaunches, PromptsOfKeysByColumns) {
  static const Op attention("attention", "attention");
  const auto kernel = [](Type type, const RecordedGpu& gpu, int64_t queries, int64_t size,
                         int64_t keys, int odd = 0) {
    Array q(type, {2, queries, 8, size}, {}, odd), out(type, q.shape()),
        v(type, {2, keys, 4, size});
    Array k(type, v.shape(), {4 * size * keys, 1, size * keys, keys});
    std::vector<Launch> launches;
    const Result result =
        attention.record({q.value(), k.value(), v.value(), none(), none(), none(), none(), none(),
                          none(), none(), boolean(true), integer(0)},
                         {&out}, gpu, &launches);
    EXPECT_EQ(result.status, OPDOCK_OK) << result.text;
    const Launch& launch = launches.at(0);
    EXPECT_LE(launch.how.shared_bytes, gpu.max_shared_bytes) << launch.kernel;
    const std::string name = launch.kernel.substr(0, launch.kernel.find('<'));
    if (name == "attention::prompt_by_columns") {
      EXPECT_EQ(launch.how.grid[0], (queries * 2 + 63) / 64) << "of 64 rows";
    }
    return name;
  };
  const std::string prompt = "attention::prompt_by_columns", columns = "attention::columns";
  for (const Type type : {Type::kFloat16, Type::kBFloat16}) {
    for (const int64_t size : {64, 128, 256}) {
      EXPECT_EQ(kernel(type, kHopper, 9, size, 1024), prompt);
      EXPECT_EQ(kernel(type, kHopper, 300, size, 1024), prompt);
      EXPECT_EQ(kernel(type, kHopper, 8, size, 1024), columns) << "16 rows";
      EXPECT_EQ(kernel(type, kHopper, 300, size, 1024, 1), columns) << "misaligned queries";
      EXPECT_EQ(kernel(type, kHopper, 300, size, 1023), "attention::plain");
      for (const RecordedGpu& gpu : {kTuring, kAmd})
        EXPECT_EQ(kernel(type, gpu, 300, size, 1024), columns);
    }
    EXPECT_EQ(kernel(type, kAda, 300, 128, 1024), prompt);
    EXPECT_EQ(kernel(type, kAda, 300, 256, 1024), columns) << "no room in shared memory";
  }
  EXPECT_EQ(kernel(Type::kFloat32, kHopper, 300, 64, 1024), columns);
}

// The keys are split into as many parts as run at once, each of at least 256 keys.
TEST(AttentionLaunches, FewBlocksSplitTheKeys) {
  for (const Type type : kTypes)
    for (const auto& [batch, keys, parts] :
         // The last case has more blocks than run at once: parts of 1024 keys.
         {std::tuple{1, 256, 1},
          {1, 257, 2},
          {1, 4096, 16},
          {1, 1 << 20, 33},
          {33, 4096, 1},
          {34, 4096, 4}}) {
      const Shape shape = {batch, 1, 8, 8, keys, 16};
      const std::vector<Launch> launches = launches_of(type, shape, kHopper);
      EXPECT_EQ(launches.at(0).how.grid[0], parts) << batch << " rows of " << keys;
      ASSERT_EQ(launches.size(), parts > 1 ? 2u : 1u);
      if (parts > 1) {
        EXPECT_TRUE(launches[1].kernel.starts_with("attention::merge<"));
      }
    }
}

// Gradients in 16 bits use tensor cores if everything consists of whole vectors, and others eight
// threads for a vector. Without logarithms of sums attention runs first.
TEST(AttentionBackwardLaunches, KernelsAndTheirGrids) {
  static const Op backward("attention", "attention_backward");
  const auto launches = [](Type type, const RecordedGpu& gpu, int64_t size, bool has_lse,
                           int odd = 0) {
    Array q(type, {2, 300, 8, size}, {}, odd), k(type, {2, 200, 4, size}), v(type, k.shape());
    Array lse(Type::kFloat32, {2, 8, 300});
    Array grad_q(type, q.shape()), grad_k(type, k.shape()), grad_v(type, k.shape());
    std::vector<Launch> found;
    const Result result = backward.record(
        {q.value(), q.value(), k.value(), v.value(), q.value(), has_lse ? lse.value() : none(),
         none(), none(), none(), none(), none(), none(), boolean(true), integer(0)},
        {&grad_q, &grad_k, &grad_v}, gpu, &found);
    EXPECT_EQ(result.status, OPDOCK_OK) << result.text;
    for (const Launch& launch : found) {
      EXPECT_LE(launch.how.shared_bytes, gpu.max_shared_bytes) << launch.kernel;
      EXPECT_EQ(launch.how.grid[1], 4u);
      EXPECT_EQ(launch.how.grid[2], 2u);
    }
    return found;
  };
  const auto expect_grids = [](const std::vector<Launch>& found, const std::string& queries,
                               const std::string& keys, int64_t each) {
    const size_t last = found.size() - 1;
    EXPECT_TRUE(found.at(last - 2).kernel.starts_with("attention::backward_row_sums<"));
    EXPECT_TRUE(found.at(last - 1).kernel.starts_with(queries)) << found.at(last - 1).kernel;
    EXPECT_TRUE(found.at(last).kernel.starts_with(keys)) << found.at(last).kernel;
    EXPECT_EQ(found.at(last - 1).how.grid[0], (600 + each - 1) / each);  // of two heads
    EXPECT_EQ(found.at(last).how.grid[0], (200 + each - 1) / each);
  };
  const std::string queries = "attention::backward_queries<", keys = "attention::backward_keys<";
  for (const Type type : {Type::kFloat16, Type::kBFloat16}) {
    for (const RecordedGpu& gpu : {kHopper, kAda})
      for (const int64_t size : {64, 128, 80})
        expect_grids(launches(type, gpu, size, true), "attention::backward_query_tiles<",
                     "attention::backward_key_tiles<", 64);
    expect_grids(launches(type, kHopper, 256, true), queries, keys, 1);
    expect_grids(launches(type, kHopper, 64, true, 1), queries, keys, 4);  // misaligned
    for (const RecordedGpu& gpu : {kTuring, kAmd})
      expect_grids(launches(type, gpu, 128, true), queries, keys, 2);
  }
  expect_grids(launches(Type::kFloat32, kHopper, 64, true), queries, keys, 4);
  const std::vector<Launch> found = launches(Type::kFloat16, kHopper, 64, false);
  ASSERT_EQ(found.size(), 4u);
  EXPECT_TRUE(found[0].kernel.starts_with("attention::prompt<")) << found[0].kernel;
}

// For sequences one behind the other there are tiles for all tokens, and one more for each sequence
// and for what lies behind the last one, because tiles end where sequences do.
TEST(AttentionVarlenLaunches, KernelsAndTheirGrids) {
  static const Op forward("attention", "attention_varlen"),
      backward("attention", "attention_varlen_backward");
  const std::string space = "attention::sequences::";
  for (const Type type : kTypes)
    for (const RecordedGpu& gpu : {kHopper, kAmd})
      for (const int odd : {0, 1}) {
        Array q(type, {300, 8, 64}, {}, odd), k(type, {200, 4, 64}), out(type, q.shape());
        Array starts(Type::kInt32, {6}), lse(Type::kFloat32, {8, 300}), grad_k(type, k.shape()),
            grad_v(type, k.shape());
        const opdock_value at = starts.value();
        const bool tiles = gpu.type == OPDOCK_CUDA && odd == 0;
        std::vector<Launch> found;
        const Result result = forward.record({q.value(), k.value(), k.value(), at, at, none(),
                                              none(), boolean(true), integer(0), none()},
                                             {&out, &lse}, gpu, &found);
        ASSERT_EQ(result.status, OPDOCK_OK) << result.text;
        ASSERT_EQ(found.size(), 1u);
        EXPECT_TRUE(found[0].kernel.starts_with(space + (tiles ? "prompt<64" : "plain<64")))
            << found[0].kernel;
        const int64_t each = !tiles ? 8 : type == Type::kFloat32 ? 128 : 64;
        EXPECT_EQ(found[0].how.grid[0], 600 / each + 6);  // of two heads
        EXPECT_EQ(found[0].how.grid[1], 4u);
        EXPECT_EQ(found[0].how.grid[2], 1u);
        found.clear();
        const Result gradients =
            backward.record({q.value(), q.value(), k.value(), k.value(), q.value(), lse.value(),
                             none(), at, at, none(), none(), boolean(true), integer(0)},
                            {&out, &grad_k, &grad_v}, gpu, &found);
        ASSERT_EQ(gradients.status, OPDOCK_OK) << gradients.text;
        ASSERT_EQ(found.size(), 3u);
        const bool by_tiles = tiles && type != Type::kFloat32;
        const std::string names[] = {space + "row_sums<64",
                                     space + (by_tiles ? "query_tiles<64" : "query_gradients<64"),
                                     space + (by_tiles ? "key_tiles<64" : "key_gradients<64")};
        const int64_t step = by_tiles ? 64 : 4;
        const int64_t blocks[] = {600 / 16 + 6, 600 / step + 6, 200 / step + 6};
        for (size_t i = 0; i < 3; ++i) {
          EXPECT_TRUE(found[i].kernel.starts_with(names[i])) << found[i].kernel;
          EXPECT_EQ(found[i].how.grid[0], blocks[i]) << found[i].kernel;
          EXPECT_LE(found[i].how.shared_bytes, gpu.max_shared_bytes);
        }
      }
}

// A bias gets its gradient from a tile for each block, and from all of them by one block where it
// has 1 in that dimension.
TEST(AttentionAddedLaunches, KernelsAndTheirGrids) {
  static const Op added("attention", "attention_added_backward");
  const auto last_of = [](Type type, const RecordedGpu& gpu, int64_t size,
                          const std::vector<int64_t>& shape) {
    Array q(type, {2, 300, 8, size}), k(type, {2, 200, 4, size}), lse(Type::kFloat32, {2, 8, 300});
    Array like(type, shape), out(type, shape);
    std::vector<Launch> found;
    const Result result = added.record(
        {q.value(), q.value(), k.value(), k.value(), q.value(), like.value(), lse.value(), none(),
         none(), none(), none(), none(), none(), boolean(true), integer(0)},
        {&out}, gpu, &found);
    EXPECT_EQ(result.status, OPDOCK_OK) << result.text;
    EXPECT_EQ(found.size(), 2u);
    EXPECT_TRUE(found.at(0).kernel.starts_with("attention::backward_row_sums<"));
    EXPECT_LE(found.at(1).how.shared_bytes, gpu.max_shared_bytes);
    return found.at(1);
  };
  const auto expect_grid = [](const Launch& launch, const std::string& kernel, uint32_t x,
                              uint32_t y, uint32_t z) {
    EXPECT_TRUE(launch.kernel.starts_with(kernel)) << launch.kernel;
    EXPECT_EQ(launch.how.grid[0], x);
    EXPECT_EQ(launch.how.grid[1], y);
    EXPECT_EQ(launch.how.grid[2], z);
  };
  const std::string tiles = "attention::added_tiles<", scores = "attention::added_scores<";
  for (const Type type : {Type::kFloat16, Type::kBFloat16}) {
    expect_grid(last_of(type, kHopper, 64, {1, 8, 300, 200}), tiles, 5 * 7, 8, 1);
    expect_grid(last_of(type, kAda, 128, {2, 1, 1, 200}), tiles, 7, 1, 2);
    expect_grid(last_of(type, kHopper, 256, {1, 8, 300, 1}), scores, 19, 8, 1);
    for (const RecordedGpu& gpu : {kTuring, kAmd})
      expect_grid(last_of(type, gpu, 64, {2, 8, 300, 200}), scores, 19 * 13, 8, 2);
  }
  expect_grid(last_of(Type::kFloat32, kHopper, 64, {1, 1, 1, 1}), scores, 1, 1, 1);
}

// Returns the kernel of append_kv for heads of `size` elements, of which `angles` pairs are
// rotated.
std::string append_kernel(Type type, int64_t size, int64_t angles, Type table, bool interleaved,
                          int odd = 0, bool has_bytes = false) {
  static const Op append("attention", "append_kv");
  Array q(type, {2, 3, 4, size}, {}, odd), k(type, {2, 3, 2, size}), out(type, q.shape());
  Array cache(has_bytes ? Type::kInt8 : type, {2, 9, 2, size}), other(cache.type(), cache.shape());
  Array start(Type::kInt32, {2}), cos(table, {9, angles}), sin(table, {9, angles});
  Array k_scale(Type::kFloat32, {2, 9, 2}), v_scale(Type::kFloat32, {2, 9, 2});
  const auto if_bytes = [&](Array& scale) { return has_bytes ? scale.value() : none(); };
  std::vector<Launch> launches;
  const Result result =
      append.record({q.value(), k.value(), k.value(), cache.value(), other.value(), start.value(),
                     angles != 0 ? cos.value() : none(), angles != 0 ? sin.value() : none(),
                     if_bytes(k_scale), if_bytes(v_scale), boolean(interleaved)},
                    {&out}, kHopper, &launches);
  EXPECT_EQ(result.status, OPDOCK_OK) << result.text;
  const std::string name = launches.at(0).kernel;
  const opdock_launch& how = launches[0].how;
  if (name.starts_with("attention::append_pieces<")) {
    const int64_t pieces = 8 * size * (type == Type::kFloat32 ? 4 : 2) / 16;
    EXPECT_EQ(how.grid[0], 6u);
    EXPECT_GE(how.grid[1] * how.block[0], pieces);
  }
  return name.substr(0, name.find('<'));
}

TEST(AppendLaunches, PiecesOf16BytesWhereAllOfItHasThem) {
  const std::string by_pieces = "attention::append_pieces", by_heads = "attention::append";
  for (const Type type : kTypes) {
    for (const bool interleaved : {false, true}) {
      EXPECT_EQ(append_kernel(type, 64, 0, Type::kFloat32, interleaved), by_pieces);
      EXPECT_EQ(append_kernel(type, 64, 32, Type::kFloat32, interleaved), by_pieces);
      EXPECT_EQ(append_kernel(type, 64, 16, Type::kFloat32, interleaved), by_pieces);
      EXPECT_EQ(append_kernel(type, 33, 0, Type::kFloat32, interleaved), by_heads);
      EXPECT_EQ(append_kernel(type, 64, 32, Type::kFloat32, interleaved, 1), by_heads);
      EXPECT_EQ(append_kernel(type, 64, 0, Type::kFloat32, interleaved, 0, true), by_heads);
      EXPECT_EQ(append_kernel(type, 64, 3, Type::kFloat32, interleaved), by_heads);
      if (type != Type::kFloat32) {
        EXPECT_EQ(append_kernel(type, 64, 32, type, interleaved), by_heads);
      }
    }
    // With 16-bit elements, halves of 12 elements are not whole pieces, but adjacent pairs are.
    if (type != Type::kFloat32) {
      EXPECT_EQ(append_kernel(type, 64, 12, Type::kFloat32, false), by_heads);
      EXPECT_EQ(append_kernel(type, 64, 12, Type::kFloat32, true), by_pieces);
    }
  }
}

}  // namespace
}  // namespace opdock_test::attention_plugin
