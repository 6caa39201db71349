// Tests barriers and shuffles, with warps of both widths.
// SPDX-License-Identifier: Apache-2.0
#include <set>
#include <thread>

#include "test_support.h"

namespace softgpu {
namespace {

TEST(Barrier, NotReachedByThreadsThatLeft) {
  const Kernel kernel = make_kernel(
      "OPDOCK_KERNEL(64) early(int* y, int n) {\n"
      "  if (thread_index() >= n)\n"
      "    return;\n"
      "  y[thread_index()] = 1;\n"
      "  block_barrier();\n"
      "}\n",
      "early");
  const DeviceArray<int> y(64);
  EXPECT_EQ(finding_of(launch_of(kernel, 1, 64, y.data(), 64)), "");
  expect_finding(finding_of(launch_of(kernel, 1, 64, y.data(), 60)),
                 {"a barrier that not all threads of the block reach", "test.cu:7",
                  "kernel   early, block (0, 0, 0)", "0 to 59 wait at the barrier at test.cu:7",
                  "60 to 63 have left the kernel"});
  EXPECT_EQ(last_fault(), Fault::kOther);
}

TEST(Barrier, ReachedAtDifferentPlaces) {
  const Kernel kernel = make_kernel(
      "OPDOCK_KERNEL(64) apart(int* y) {\n"
      "  if (thread_index() < 32) {\n"
      "    y[thread_index()] = 1;\n"
      "    block_barrier();\n"
      "  } else {\n"
      "    block_barrier();\n"
      "    y[thread_index()] = 1;\n"
      "  }\n"
      "}\n",
      "apart");
  const DeviceArray<int> y(64);
  expect_finding(finding_of(launch_of(kernel, 1, 64, y.data())),
                 {"a barrier that the threads of the block reach at different places", "test.cu:6",
                  "test.cu:8"});
}

TEST(Shuffle, AmongInactiveLanes) {
  const Kernel kernel = make_kernel(
      "OPDOCK_KERNEL(64) half_of(float* y) {\n"
      "  if (thread_index() < 16)\n"
      "    y[thread_index()] = shuffle_xor(1.0f, 1);\n"
      "  block_barrier();\n"
      "}\n",
      "half_of");
  const DeviceArray<float> y(64);
  expect_finding(
      finding_of(launch_of(kernel, 1, 64, y.data())),
      {"inactive lanes", "test.cu:5", "threads  0 to 15 wait for their warp at test.cu:5",
       "16 to 63 wait at the barrier at test.cu:6"});
}

TEST(Shuffle, OfALaneThatTheBlockDoesNotHave) {
  const Kernel kernel = make_kernel(
      "OPDOCK_KERNEL(64) odd(float* y) { y[thread_index()] = shuffle_xor(1.0f, 16); }\n", "odd");
  const DeviceArray<float> y(64);
  EXPECT_EQ(finding_of(launch_of(kernel, 1, 64, y.data())), "");
  expect_finding(finding_of(launch_of(kernel, 1, 40, y.data())),
                 {"a shuffle that takes the value of lane",
                  "the last warp of the block does not have", "test.cu:3"});
}

TEST(Shuffle, AtDifferentPlaces) {
  const Kernel kernel = make_kernel(
      "OPDOCK_KERNEL(32) apart(float* y) {\n"
      "  float got;\n"
      "  if (thread_index() % 2)\n"
      "    got = shuffle_xor(1.0f, 1) + y[0];\n"
      "  else\n"
      "    got = shuffle_xor(2.0f, 1) * y[1];\n"
      "  y[2 + thread_index()] = got;\n"
      "}\n",
      "apart");
  const DeviceArray<float> y(std::vector<float>(34, 1.0f));
  expect_finding(finding_of(launch_of(kernel, 1, 32, y.data())),
                 {"reach at different places", "test.cu:6", "test.cu:8"});
}

TEST(Shuffle, ValuesForBothWidths) {
  for (int width : {32, 64}) {
    const Kernel kernel = make_kernel(
        "OPDOCK_KERNEL(128) values(float* x, uint32_t* y, float* z) {\n"
        "  const int i = thread_index();\n"
        "  x[i] = shuffle(static_cast<float>(i), 5);\n"
        "  y[i] = shuffle_xor(static_cast<uint32_t>(i), warp_width() / 2);\n"
        "  z[i] = warp_reduce<Sum>(1.0f);\n"
        "}\n",
        "values", static_cast<uint32_t>(width));
    const DeviceArray<float> x(128), z(128);
    const DeviceArray<uint32_t> y(128);
    EXPECT_EQ(finding_of(launch_of(kernel, 1, 128, x.data(), y.data(), z.data())), "");
    for (int i = 0; i < 128; ++i) {
      const size_t at = static_cast<size_t>(i);
      EXPECT_EQ(x.get()[at], i / width * width + 5);
      EXPECT_EQ(y.get()[at], static_cast<uint32_t>(i ^ (width / 2)));
      EXPECT_EQ(z.get()[at], width);
    }
  }
}

// This kernel assumes 32-wide warps: it is correct on them and has a race on 64-wide ones.
TEST(Width, ScratchOfAWarpThatIsTakenFor32Wide) {
  const std::string text =
      "OPDOCK_KERNEL(64) sums(const float* x, float* y) {\n"
      "  OPDOCK_SHARED(float, scratch, 2);\n"
      "  float sum = x[thread_index()];\n"
      "  for (int mask = warp_width() / 2; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);\n"
      "  if (thread_index() % 32 == 0) scratch[thread_index() / warp_width()] = sum + "
      "thread_index();\n"
      "  block_barrier();\n"
      "  y[thread_index()] = scratch[thread_index() / warp_width()];\n"
      "}\n";
  const DeviceArray<float> x(std::vector<float>(64, 1.0f)), y(64);
  EXPECT_EQ(finding_of(launch_of(make_kernel(text, "sums", 32), 1, 64, x.data(), y.data())), "");
  expect_finding(finding_of(launch_of(make_kernel(text, "sums", 64), 1, 64, x.data(), y.data())),
                 {"race: write of 4 bytes", "test.cu:7", "of a warp of 64"});
}

TEST(Width, ReductionThatIsTakenFor32Wide) {
  const std::string text =
      "OPDOCK_KERNEL(64) sum(const float* x, float* y) {\n"
      "  float sum = x[thread_index()];\n"
      "  for (int mask = 16; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);\n"
      "  if (thread_index() % warp_width() == 0) y[thread_index() / warp_width()] = sum;\n"
      "}\n";
  const DeviceArray<float> x(std::vector<float>(64, 1.0f));
  for (uint32_t width : {32u, 64u}) {
    const DeviceArray<float> y(64 / width);
    EXPECT_EQ(finding_of(launch_of(make_kernel(text, "sum", width), 1, 64, x.data(), y.data())),
              "");
    // A test against an oracle sees the wrong sum.
    EXPECT_EQ(y.get()[0] == static_cast<float>(width), width == 32);
  }
}

// ---- the order of blocks and threads

TEST(Seed, DecidesTheOrderAndFindsAgain) {
  // The write is out of bounds if thread 3 of block 1 is the first thread to run.
  const Kernel kernel = make_kernel(
      "OPDOCK_KERNEL(8) first(int* seen, int* y) {\n"
      "  const int mine = static_cast<int>(block_index()) * 8 + thread_index();\n"
      "  OPDOCK_SHARED(int, order, 1);\n"
      "  if (seen[0] == -1) {\n"
      "    seen[0] = mine;\n"
      "    y[mine == 11 ? 99 : mine] = 1;\n"
      "  }\n"
      "}\n",
      "first");
  const DeviceArray<int> y(16);
  std::set<int> firsts;
  std::vector<uint64_t> bad;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    // seen[0] names another thread afterwards; the race that follows does not matter here.
    const DeviceArray<int> seen(std::vector<int>(1, -1));
    configure({.seed = seed, .workers = 1, .counters = false, .steps = kSteps});
    const std::string found = finding_of(launch_of(kernel, 2, 8, seen.data(), y.data()));
    firsts.insert(*seen.data());
    if (found.find("out-of-bounds") == found.npos) continue;
    bad.push_back(seed);
    expect_finding(found, {"block (1, 0, 0), thread (3, 0, 0)", "seed " + std::to_string(seed)});
  }
  EXPECT_EQ(firsts.size(), 16u);
  ASSERT_FALSE(bad.empty());
  EXPECT_LT(bad.size(), 60u);
  for (uint64_t seed : bad) {
    const DeviceArray<int> seen(std::vector<int>(1, -1));
    configure({.seed = seed, .workers = 1, .counters = false, .steps = kSteps});
    expect_finding(finding_of(launch_of(kernel, 2, 8, seen.data(), y.data())),
                   {"out-of-bounds", "block (1, 0, 0), thread (3, 0, 0)"});
  }
  configure({});
}

TEST(Launch, GridsAndBlocksOfThreeDimensions) {
  const Kernel kernel = make_kernel(
      "OPDOCK_KERNEL(64) where(int* y) {\n"
      "  const int64_t block = block_index() + grid_blocks() * block_index_y();\n"
      "  const int thread = thread_index() + block_threads() * thread_index_y();\n"
      "  y[block * block_threads() * block_threads_y() + thread] = static_cast<int>(\n"
      "      thread_index() + 10 * thread_index_y() + 100 * block_index() + 1000 * "
      "block_index_y());\n"
      "}\n",
      "where");
  const DeviceArray<int> y(2 * 3 * 4 * 5);
  Launch launch = launch_of(kernel, 2, 4, y.data());
  launch.grid[1] = 3;
  launch.block[1] = 5;
  EXPECT_EQ(finding_of(launch), "");
  const std::vector<int> got = y.get();
  for (size_t i = 0; i < got.size(); ++i) {
    const size_t thread = i % 20, block = i / 20;
    EXPECT_EQ(got[i], static_cast<int>(thread % 4 + 10 * (thread / 4) + 100 * (block % 2) +
                                       1000 * (block / 2)));
  }
}

TEST(Launch, IsRefusedWithAReason) {
  const Kernel kernel = make_kernel("OPDOCK_KERNEL(64) one(int* y) { *y = 1; }\n", "one");
  const DeviceArray<int> y(1);
  expect_finding(finding_of(launch_of(kernel, 1, 1025, y.data())), {"1025 threads a block"});
  Kernel bound = kernel;
  bound.max_threads = 64;
  EXPECT_EQ(finding_of(launch_of(bound, 1, 64, y.data())), "");
  expect_finding(finding_of(launch_of(bound, 1, 65, y.data())),
                 {"65 threads a block, of at most 64"});
  expect_finding(finding_of(launch_of(kernel, 0, 32, y.data())), {"empty grid"});
  expect_finding(finding_of(launch_of(kernel, 1, 32)), {"0 arguments for 1 parameters"});
  expect_finding(finding_of(launch_of(kernel, 1, 32, 7)), {"4 bytes for parameter 0, which has 8"});
}

TEST(Launch, SeveralAtOnce) {
  const Kernel kernel = make_kernel(
      "OPDOCK_KERNEL(64) sum(const int* x, int* y) {\n"
      "  OPDOCK_SHARED(int, a, 64);\n"
      "  a[thread_index()] = x[block_index() * 64 + thread_index()];\n"
      "  block_barrier();\n"
      "  if (thread_index() != 0) return;\n"
      "  int sum = 0;\n"
      "  for (int i = 0; i < 64; ++i) sum += a[i];\n"
      "  y[block_index()] = sum;\n"
      "}\n",
      "sum");
  clear_findings();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&kernel, t] {
      for (int round = 0; round < 20; ++round) {
        const DeviceArray<int> x(std::vector<int>(64 * 80, t + round)), y(80);
        EXPECT_TRUE(execute({}, launch_of(kernel, 80, 64, x.data(), y.data())));
        EXPECT_EQ(y.get(), std::vector<int>(80, 64 * (t + round)));
        // One thread's fault does not stop the other threads.
        EXPECT_FALSE(execute({}, launch_of(kernel, 81, 64, x.data(), y.data())));
        EXPECT_EQ(last_fault(), Fault::kAddress);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(findings().size(), 80u);
  clear_findings();
}

TEST(Compile, SaysWhatTheCompilerSaid) {
  KernelSource source;
  source.program = "#include \"opdock/device.cuh\"\nOPDOCK_KERNEL(1) bad() { nonsense(); }\n";
  source.program_name = "bad.cu";
  source.headers = headers_with({});
  source.kernels = {"bad"};
  std::string problem;
  EXPECT_EQ(compile_kernels(source, KERNEL_FOLDER, &problem), "");
  expect_finding(problem, {"does not compile for the software GPU", "bad.cu:2", "nonsense"});
  source.headers.emplace_back("../outside.h", "");
  EXPECT_EQ(compile_kernels(source, KERNEL_FOLDER, &problem), "");
  expect_finding(problem, {"\"../outside.h\" cannot be written"});
  EXPECT_TRUE(open_kernels("/nonexistent.so", &problem).empty());
  expect_finding(problem, {"/nonexistent.so"});
}

TEST(Compile, SaysWhatToWriteForCudasNames) {
  KernelSource source;
  source.program_name = "mine.cuh";
  source.program =
      "#include \"opdock/device.cuh\"\n"
      "// atomicMax in a comment, \"\n"
      "const char* text = \"__ldg /* in a text\";\n"
      "__global__ void mine(float* y) {\n"
      "  __shared__ float sums[32];\n"
      "  /* two\n lines */ y[threadIdx.x] = sums[threadIdx.x] + opdock::exp(y[0]);\n"
      "}\n";
  source.headers = headers_with({});
  source.kernels = {"mine"};
  std::string problem;
  EXPECT_EQ(compile_kernels(source, KERNEL_FOLDER, &problem), "");
  EXPECT_EQ(problem.substr(problem.find('\n') + 1),
            "mine.cuh:4: __global__ is CUDA's; write OPDOCK_KERNEL(max_threads) instead of "
            "\"__global__ void\"\n"
            "mine.cuh:5: __shared__ is CUDA's; write OPDOCK_SHARED(type, name, count), or "
            "dynamic_shared<T>()\n"
            "mine.cuh:7: threadIdx is CUDA's; write thread_index(), thread_index_y(), "
            "thread_index_z()\n");
  // The compiler's own message survives, although a header uses one of CUDA's names as a macro.
  source.program = "#include \"opdock/device.cuh\"\nOPDOCK_KERNEL(1) mine() { nonsense(); }\n";
  source.headers.emplace_back("mine.h", "#define MINE __syncthreads()\n");
  EXPECT_EQ(compile_kernels(source, KERNEL_FOLDER, &problem), "");
  expect_finding(problem, {"mine.cuh:2", "nonsense"});
}

TEST(Compile, TakesTheOptionsThatMeanSomething) {
  KernelSource source;
  source.program =
      "#include \"opdock/device.cuh\"\nOPDOCK_KERNEL(1) k(int* y) { *y = A + B + C; }\n";
  source.headers = headers_with({});
  source.kernels = {"k"};
  source.options = {"--std=c++20",     "-DA=1",          "-D", "B=2", "--define-macro=C=4",
                    "--use_fast_math", "-default-device"};
  std::string problem;
  const std::string library = compile_kernels(source, KERNEL_FOLDER, &problem);
  ASSERT_NE(library, "") << problem;
  EXPECT_EQ(compile_kernels(source, KERNEL_FOLDER, &problem), library);
  const std::vector<Kernel> kernels = open_kernels(library, &problem);
  ASSERT_EQ(kernels.size(), 1u);
  EXPECT_EQ(kernels[0].name, "_Z1kPi");
  EXPECT_EQ(kernels[0].param_sizes, std::vector<uint32_t>{8});
  const DeviceArray<int> y(1);
  EXPECT_EQ(finding_of(launch_of(kernels[0], 1, 1, y.data())), "");
  EXPECT_EQ(y.get()[0], 7);
  source.options[1] = "-DA=8";
  EXPECT_NE(compile_kernels(source, KERNEL_FOLDER, &problem), library);
}

}  // namespace
}  // namespace softgpu
