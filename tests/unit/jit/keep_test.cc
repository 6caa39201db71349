// Tests OPDOCK_JIT_KEEP: what a compilation writes, where, and what happens if it cannot be
// written.
// SPDX-License-Identifier: Apache-2.0
#include "jit/keep.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "support.h"

namespace opdock_test {
namespace {

using Json = nlohmann::json;

// FIPS 180-2, appendix B.1: the digest of "abc".
constexpr char kAbc[] = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

Json read(const fs::path& path) {
  std::ifstream stream(path);
  return Json::parse(stream, nullptr, false);
}

size_t count(const fs::path& folder) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(folder), {}));
}

class Keep : public testing::Test {
 protected:
  Keep() {
    request.name = "softmax 1.0";
    request.headers = {{"a.cuh", "A"}, {"opdock/device.cuh", "D"}};
    request.sources = {"a.cuh"};
    request.options = {"-DX=1"};
    request.kernels = {"g<float>", "f"};
    request.arch = "sm_90a";
  }
  ~Keep() override { unsetenv("OPDOCK_JIT_KEEP"); }
  void keep(std::string_view image, ImageKind kind = ImageKind::kCubin) {
    const uint8_t* const bytes = reinterpret_cast<const uint8_t*>(image.data());
    keep_source(kept.string(), request, kind, {bytes, image.size()}, names, &reasons);
  }

  TemporaryFolder folder;
  const fs::path kept = folder.path() / "new" / "kept";
  CompileRequest request;
  const std::vector<std::pair<std::string, std::string>> names = {{"g<float>", "_Z1gIfEvv"},
                                                                  {"f", "_Z1fv"}};
  std::vector<Reason> reasons;
};

TEST_F(Keep, TheImageNamesItsSource) {
  keep("abc");
  ASSERT_TRUE(reasons.empty()) << all_text(reasons);
  const Json entry = read(kept / (std::string(kAbc) + ".json"));
  EXPECT_EQ(entry, Json({{"backend", "cuda"},
                         {"arch", "sm_90a"},
                         {"source", entry.value("source", "")},
                         {"kernels", {{"_Z1gIfEvv", "g<float>"}, {"_Z1fv", "f"}}}}));
  const Json source = read(kept / ("source-" + entry.value("source", "") + ".json"));
  EXPECT_EQ(source, Json({{"program", "#include \"a.cuh\"\n"},
                          {"program_name", "plugin.cu"},
                          {"headers", {{"a.cuh", "A"}, {"opdock/device.cuh", "D"}}},
                          {"options", {"-DX=1"}},
                          {"kernels", {"f", "g<float>"}}}));
  EXPECT_EQ(count(kept), 2u) << "nothing else is left";
}

TEST_F(Keep, PtxEndsWithOneNul) {
  keep(std::string_view("abc\0", 4), ImageKind::kPtx);
  const Json first = read(fs::directory_iterator(kept)->path());
  keep("abc", ImageKind::kPtx);
  EXPECT_EQ(count(kept), 2u);
  keep("abc", ImageKind::kCubin);
  EXPECT_EQ(count(kept), 3u) << "a cubin is taken as it is";
}

TEST_F(Keep, TheSourcesDigestIsOfWhatItMeans) {
  const std::string digest = source_digest(request);
  EXPECT_EQ(digest.size(), 64u);
  CompileRequest same = request;
  same.name = "other";
  same.arch = "gfx90a";
  same.backend = Backend::kRocm;
  std::reverse(same.headers.begin(), same.headers.end());
  std::reverse(same.kernels.begin(), same.kernels.end());
  same.kernels.push_back("f");
  EXPECT_EQ(source_digest(same), digest);
  same.program = "#include \"a.cuh\"\n";
  same.sources.clear();
  EXPECT_EQ(source_digest(same), digest) << "the compiler gets the same text";

  std::vector<std::string> digests = {digest};
  const auto changed = [&](auto change) {
    CompileRequest other = request;
    change(&other);
    digests.push_back(source_digest(other));
  };
  changed([](CompileRequest* r) { r->program = "x"; });
  changed([](CompileRequest* r) { r->program_name = "x.cu"; });
  changed([](CompileRequest* r) { r->headers[0].text = "B"; });
  changed([](CompileRequest* r) { r->headers[0].name = "b.cuh"; });
  changed([](CompileRequest* r) { r->headers.pop_back(); });
  changed([](CompileRequest* r) { r->sources.push_back("opdock/device.cuh"); });
  changed([](CompileRequest* r) { r->options[0] = "-DX=2"; });
  changed([](CompileRequest* r) { r->options.clear(); });
  changed([](CompileRequest* r) { r->kernels.pop_back(); });
  changed([](CompileRequest* r) { r->kernels[0] = "g<half>"; });
  // Texts of one kind must not be mistaken for texts of another kind.
  changed([](CompileRequest* r) { r->kernels = {"f"}, r->options = {"-DX=1", "g<float>"}; });
  std::sort(digests.begin(), digests.end());
  EXPECT_EQ(std::unique(digests.begin(), digests.end()), digests.end());
}

TEST_F(Keep, WhatIsNoUtf8IsKeptAllTheSame) {
  request.headers[0].text = "// caf\xe9";
  keep("abc");
  EXPECT_TRUE(reasons.empty()) << all_text(reasons);
  const std::string digest = source_digest(request);
  EXPECT_EQ(read(kept / ("source-" + digest + ".json"))["headers"]["a.cuh"], "// caf\xef\xbf\xbd");
}

TEST_F(Keep, CompilationsAreKeptAlsoWhereTheCacheHadThem) {
  request.program = "// TheCompileService\n";
  MemoryCache cache;
  const std::vector<NvrtcFile> nvrtcs = {{FAKE_NVRTC_12, {12, 9}, "aa12", ""}};
  JitContext context;
  context.cache = &cache;
  context.nvrtcs = &nvrtcs;
  ASSERT_NE(compile_image(request, context, &reasons), nullptr) << all_text(reasons);
  EXPECT_FALSE(fs::exists(kept)) << "nobody asked for it";
  setenv("OPDOCK_JIT_KEEP", kept.c_str(), 1);
  const CompiledImagePtr image = compile_image(request, context, &reasons);
  ASSERT_NE(image, nullptr) << all_text(reasons);
  EXPECT_TRUE(image->from_cache);
  const std::string file = "source-" + source_digest(request) + ".json";
  EXPECT_EQ(read(kept / file)["program"], request.program);
  EXPECT_EQ(count(kept), 2u);
}

TEST_F(Keep, AFolderThatCannotBeMadeIsANotice) {
  folder.write("new", "a file");
  request.program = "// AFolderThatCannotBeMade\n";
  const std::vector<NvrtcFile> nvrtcs = {{FAKE_NVRTC_12, {12, 9}, "aa12", ""}};
  JitContext context;
  context.nvrtcs = &nvrtcs;
  setenv("OPDOCK_JIT_KEEP", kept.c_str(), 1);
  EXPECT_NE(compile_image(request, context, &reasons), nullptr);
  ASSERT_EQ(reasons.size(), 1u);
  EXPECT_EQ(reasons[0].code, Code::kJitKeep);
  EXPECT_NE(to_text(reasons[0]).find(kept.string() + ": Not a directory"), std::string::npos);
}

}  // namespace
}  // namespace opdock_test
