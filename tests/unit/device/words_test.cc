// Compiles every function of the device vocabulary with every NVRTC and hipRTC of this machine, for
// architectures before and after each feature was introduced.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "facts/environment.h"
#include "facts/nvrtc_search.h"
#include "jit/compiler.h"
#include "jit/nvrtc.h"

namespace opdock {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::vector<SourceText> vocabulary() {
  std::vector<SourceText> headers;
  for (const auto& entry : fs::directory_iterator(fs::path(DEVICE_DIR) / "opdock"))
    headers.push_back({"opdock/" + entry.path().filename().string(), text_of(entry.path())});
  headers.push_back({"words.cuh", text_of(WORDS)});
  return headers;
}

TEST(Words, CompileUnderNvrtc) {
  std::vector<std::string> problems;
  const std::vector<const Nvrtc*> compilers =
      open_nvrtcs(nvrtc_candidates({NVRTC_SEARCH}, nullptr), &problems);
  if (compilers.empty()) GTEST_SKIP() << "no NVRTC is installed";
  for (const Nvrtc* compiler : compilers) {
    for (int arch : {70, 75, 80, 89, 90, 100, 120}) {
      if (!compiler->knows(arch)) continue;
      CompileJob job;
      job.headers = vocabulary();
      job.sources = {"words.cuh"};
      job.kernels = {"words"};
      job.arch = "sm_" + std::to_string(arch);
      const CompileResult result = compiler->compile(job);
      EXPECT_TRUE(result.ok) << compiler->path() << " " << job.arch << "\n" << result.log;
      // For older architectures, NVRTC warns that it will drop them.
      if (arch >= 75) {
        EXPECT_EQ(result.log, "") << job.arch;
      }
    }
  }
}

TEST(Words, CompileUnderHiprtc) {
  std::vector<std::string> searched;
  const std::vector<HiprtcFile> compilers = find_hiprtc_files(current_environment(), &searched);
  if (compilers.empty()) GTEST_SKIP() << "no hipRTC is installed";
  for (const char* arch : {"gfx90a", "gfx908", "gfx1030"}) {
    CompileRequest request;
    request.name = "words";
    request.headers = vocabulary();
    request.sources = {"words.cuh"};
    request.kernels = {"words"};
    request.backend = Backend::kRocm;
    request.arch = arch;
    JitContext context;
    context.hiprtcs = &compilers;
    context.worker = OPDOCK_COMPILE;
    std::vector<Reason> reasons;
    const CompiledImagePtr image = compile_image(request, context, &reasons);
    std::string text;
    for (const Reason& reason : reasons) text += to_text(reason) + "\n";
    ASSERT_NE(image, nullptr) << arch << "\n" << text;
    EXPECT_EQ(image->kind, ImageKind::kCodeObject);
  }
}

}  // namespace
}  // namespace opdock
