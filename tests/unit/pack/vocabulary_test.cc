// Tests that the device vocabulary and the plugins' kernels compile with every NVRTC of this
// machine.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>

#include "facts/nvrtc_search.h"
#include "jit/nvrtc.h"
#include "support/temporary_folder.h"

namespace opdock {
namespace {

std::vector<const Nvrtc*> compilers() {
  std::vector<std::string> problems;
  return open_nvrtcs(nvrtc_candidates({OPDOCK_NVRTC_SEARCH}, nullptr), &problems);
}

std::vector<SourceText> vocabulary() {
  const std::filesystem::path root = OPDOCK_DEVICE_DIR;
  std::vector<SourceText> headers;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root))
    if (entry.path().extension() == ".cuh")
      headers.push_back({entry.path().lexically_relative(root).generic_string(),
                         opdock_test::contents(entry.path())});
  return headers;
}

TEST(Vocabulary, EachHeaderCompilesAloneOnTheOldestAndNewestArchitecture) {
  if (compilers().empty()) GTEST_SKIP() << "no NVRTC is installed";
  for (const Nvrtc* compiler : compilers()) {
    for (const SourceText& header : vocabulary()) {
      for (int arch : {compiler->archs().front(), 90, compiler->archs().back()}) {
        CompileJob job;
        job.headers = vocabulary();
        job.sources = {header.name};
        job.arch = "sm_" + std::to_string(arch);
        const CompileResult result = compiler->compile(job);
        EXPECT_TRUE(result.ok) << header.name << " " << job.arch << "\n" << result.log;
        // For older architectures, NVRTC warns that it will drop them.
        if (arch >= 75) {
          EXPECT_EQ(result.log, "") << header.name << " " << job.arch;
        }
      }
    }
  }
}

TEST(Vocabulary, KernelsAreFoundByTheirSourceName) {
  if (compilers().empty()) GTEST_SKIP() << "no NVRTC is installed";
  for (const Nvrtc* compiler : compilers()) {
    CompileJob job;
    job.headers = vocabulary();
    job.headers.push_back({"k.cuh",
                           "#include \"opdock/device.cuh\"\n"
                           "namespace p { template <class T> OPDOCK_KERNEL(32) k(T* x) {\n"
                           "  x[opdock::thread_index()] = opdock::from_float<T>(1.0f); } }\n"});
    job.sources = {"k.cuh"};
    job.kernels = {"p::k<float>", "p::k<opdock::half>", "p::k<opdock::bfloat16>"};
    job.arch = "sm_90";
    const CompileResult cubin = compiler->compile(job);
    ASSERT_TRUE(cubin.ok) << cubin.log;
    EXPECT_EQ(std::string(cubin.image.begin(), cubin.image.begin() + 4),
              "\x7f"
              "ELF");
    ASSERT_EQ(cubin.names.size(), 3u);
    EXPECT_EQ(cubin.names[0].second, "_ZN1p1kIfEEvPT_");
    job.arch = "compute_75";
    const CompileResult ptx = compiler->compile(job);
    ASSERT_TRUE(ptx.ok) << ptx.log;
    const std::string text(ptx.image.begin(), ptx.image.end());
    EXPECT_NE(text.find(".target sm_75"), std::string::npos);
    // The same inputs give the same image.
    EXPECT_EQ(compiler->compile(job).image, ptx.image);
  }
}

// The compiler once turned two vector stores into eight 4-byte stores, which was found by counting
// on a GPU.
TEST(Vocabulary, AVectorIsStoredByOneInstruction) {
  if (compilers().empty()) GTEST_SKIP() << "no NVRTC is installed";
  const std::filesystem::path softmax =
      std::filesystem::path(OPDOCK_DEVICE_DIR) / "../../plugins/softmax/device/softmax.cuh";
  for (const Nvrtc* compiler : compilers()) {
    CompileJob job;
    job.headers = vocabulary();
    for (const char* name : {"softmax.cuh", "softmax_params.cuh"})
      job.headers.push_back({name, opdock_test::contents(softmax.parent_path() / name)});
    job.sources = {"softmax.cuh"};
    job.kernels = {"softmax::block_rows<opdock::half, 4, 0>"};
    job.arch = "compute_90";
    const CompileResult ptx = compiler->compile(job);
    ASSERT_TRUE(ptx.ok) << ptx.log;
    const std::string text(ptx.image.begin(), ptx.image.end());
    int stores = 0;
    for (size_t at = 0; (at = text.find("st.global.", at)) != std::string::npos; ++at, ++stores)
      EXPECT_EQ(text.substr(at, 16), "st.global.v4.b32");
    EXPECT_EQ(stores, 2 * 4);  // four stores of powers, and four of logarithms
  }
}

TEST(Vocabulary, ErrorsInKernelsAreShown) {
  if (compilers().empty()) GTEST_SKIP() << "no NVRTC is installed";
  CompileJob job;
  job.headers = {{"k.cuh", "\n\nthis is no code\n"}};
  job.sources = {"k.cuh"};
  job.arch = "sm_90";
  const CompileResult result = compilers()[0]->compile(job);
  EXPECT_FALSE(result.ok);
  EXPECT_NE(result.log.find("k.cuh(3)"), std::string::npos) << result.log;
}

}  // namespace
}  // namespace opdock
