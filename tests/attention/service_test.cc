// Tests the table of opdock.attention/1 as a plugin uses it, over a stand-in for cuDNN and a driver
// whose device is this machine's memory.
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <thread>

#include "attention_case.h"
#include "facts/nvrtc_search.h"

namespace opdock::testing_support {
namespace {

TEST_F(Attention, AllKeys) {
  for (const int type : {kF16, kBf16}) {
    Case what(0, 0, 5, 7, type);
    check(&what);
  }
}
TEST_F(Attention, Causal) {
  for (const uint32_t flags : {kCausal, kBottomRight}) {
    Case what(flags);
    check(&what);
  }
}
TEST_F(Attention, Window) {
  for (const uint32_t flags : {0u, kCausal, kBottomRight}) {
    Case what(flags, 3);
    check(&what);
  }
}
TEST_F(Attention, Lengths) {
  for (const uint32_t flags : {0u, kCausal, kBottomRight}) {
    Case what(flags | kLengths, flags == 0 ? 0 : 4);
    check(&what);
  }
}
TEST_F(Attention, OneOfTheLengths) {
  for (const uint32_t which : {OPDOCK_ATTENTION_QUERY_LENGTHS, OPDOCK_ATTENTION_KEY_LENGTHS}) {
    Case what(kBottomRight | which);
    check(&what);
  }
}
TEST_F(Attention, Bias) {
  for (const uint32_t flags : {0u, kCausal}) {
    Case what(flags, 0, 5, 8);
    what.add_bias();
    check(&what);
  }
}
TEST_F(Attention, ABiasWithAsManyQueriesAsKeys) {  // the two diagonals are one
  Case what(kBottomRight, 0, 8, 8);
  what.add_bias();
  check(&what);
}
TEST_F(Attention, Deterministic) {
  Case what(kCausal);
  check(&what);
  const uint64_t with_sums = workspace_bytes;
  what.what.flags |= OPDOCK_ATTENTION_DETERMINISTIC;
  ASSERT_EQ(caller.call(&what), OPDOCK_OK) << caller.f.error;
  what.check();
  const uint64_t without_sums = workspace_bytes;
  EXPECT_LT(without_sums, with_sums);
  // A caller may ask for it.
  what.what.flags &= ~OPDOCK_ATTENTION_DETERMINISTIC;
  opdock_call_options options = {};
  options.struct_size = sizeof options;
  caller.options = &options;
  for (const int32_t wanted : {1, 0}) {
    options.wants_deterministic =
        wanted != 0 ? [] { return int32_t{1}; } : [] { return int32_t{0}; };
    ASSERT_EQ(caller.call(&what), OPDOCK_OK) << caller.f.error;
    what.check();
    EXPECT_EQ(workspace_bytes, wanted != 0 ? without_sums : with_sums);
  }
  options.struct_size = offsetof(opdock_call_options, wants_deterministic);  // of an older program
  options.wants_deterministic = [] { return int32_t{1}; };
  ASSERT_EQ(caller.call(&what), OPDOCK_OK) << caller.f.error;
  EXPECT_EQ(workspace_bytes, with_sums);
}

TEST_F(Attention, PlansAreKept) {
  Case what(kCausal);
  ASSERT_EQ(caller.call(&what), OPDOCK_OK) << caller.f.error;
  const int graphs = count("graph"), descriptors = count("descriptor");
  what.what.scale = 0.5f;  // passed with each call
  ASSERT_EQ(caller.call(&what), OPDOCK_OK);
  what.check();
  EXPECT_EQ(count("graph"), graphs);
  EXPECT_EQ(count("descriptor"), descriptors);
  what.what.q.data = what.d_out.memory.data();  // as aligned as the other one
  ASSERT_EQ(caller.call(&what), OPDOCK_OK);
  EXPECT_EQ(count("graph"), graphs);
}
TEST_F(Attention, EachThreadHasAHandleAndLeavesIt) {
  Case what(0);
  ASSERT_EQ(caller.call(&what), OPDOCK_OK) << caller.f.error;
  const int handles = count("create");
  for (int i = 0; i < 2; ++i) std::thread([&] { caller.call(&what); }).join();
  EXPECT_EQ(ran, OPDOCK_OK);
  EXPECT_EQ(count("create"), handles + 1);
}
TEST_F(Attention, ANewFormIsNotPlannedInACapture) {
  Case known(0), fresh(0, 0, 6, 9);
  ASSERT_EQ(caller.call(&known), OPDOCK_OK) << caller.f.error;
  driver.captures = true;
  EXPECT_EQ(caller.call(&known), OPDOCK_OK) << caller.f.error;
  EXPECT_EQ(caller.call(&fresh), OPDOCK_UNSUPPORTED);
  driver.captures = false;
  EXPECT_NE(std::string(caller.f.error).find("the stream being captured"), std::string::npos)
      << caller.f.error;
  EXPECT_EQ(caller.call(&fresh), OPDOCK_OK) << caller.f.error;
  EXPECT_EQ(driver.entered, 0);
}
TEST_F(Attention, ShapesAloneAreAnsweredWithoutTheLibrary) {
  Case what(kCausal, 0, 8, 9);
  what.what.q.data = nullptr;
  const int graphs = count("graph");
  caller.call(&what);
  EXPECT_EQ(planned, OPDOCK_OK);
  EXPECT_EQ(workspace_bytes, 0u);
  EXPECT_EQ(count("graph"), graphs);
  EXPECT_NE(std::string(caller.f.error).find("q.data: found NULL"), std::string::npos);
}
TEST_F(Attention, LessWorkspaceThanPlanned) {
  Case what(kBackward);
  misuse = 3;
  EXPECT_EQ(caller.call(&what), OPDOCK_UNSUPPORTED);
  EXPECT_NE(std::string(caller.f.error).find("0 bytes of workspace"), std::string::npos)
      << caller.f.error;
}
TEST_F(Attention, WhatTheServiceDeclines) {
  const auto declined = [&](Case* what, const char* words, opdock_device on = {OPDOCK_CUDA, 0}) {
    EXPECT_EQ(caller.call(what, on), OPDOCK_UNSUPPORTED);
    EXPECT_NE(std::string(caller.f.error).find(words), std::string::npos) << caller.f.error;
  };
  Case odd(0), loose(0), tall(kBottomRight, 0, 9, 5), same_for_queries(0, 0, 5, 8), narrow(0),
      other(0), cpu(0);
  odd.what.size = 4;
  declined(&odd, "attention-declined: found heads of 4 and 16 elements, wanted multiples of 8");
  loose.what.k.token_stride += 1;
  declined(&loose, "no multiple of 16 bytes");
  declined(&tall, "9 queries of 5 keys");
  narrow.add_bias();
  declined(&narrow, "no multiple of 16 bytes");
  same_for_queries.add_bias();
  same_for_queries.what.bias_strides[2] = 0;
  declined(&same_for_queries, "the same for every query");
  other.what.dtype = kF32;
  declined(&other, "dtype: found float32, wanted float16 or bfloat16");
  declined(&cpu, "found cpu, wanted a CUDA device", kCpu);
  // A kind of reason is logged once in a process; an earlier test may have done it.
  EXPECT_EQ(caller.f.resolver.logged.find("attention is computed"),
            caller.f.resolver.logged.rfind("attention is computed"));
}
TEST_F(Attention, WhatContradictsItself) {
  Case heads(0), window(0), short_struct(0);
  heads.what.kv_heads = 3;
  EXPECT_EQ(caller.call(&heads), OPDOCK_INVALID_ARGUMENT);
  EXPECT_NE(std::string(caller.f.error).find("kv_heads: found 3"), std::string::npos);
  window.what.window = -1;
  EXPECT_EQ(caller.call(&window), OPDOCK_INVALID_ARGUMENT);
  short_struct.what.struct_size = offsetof(opdock_attention, bias_strides);
  EXPECT_EQ(caller.call(&short_struct), OPDOCK_INTERNAL);
  EXPECT_NE(std::string(caller.f.error).find("sizeof(opdock_attention)"), std::string::npos);
  for (misuse = 1; misuse <= 2; ++misuse) {
    Case what(0);
    EXPECT_EQ(caller.call(&what), OPDOCK_INTERNAL);
    EXPECT_NE(std::string(caller.f.error).find("another phase"), std::string::npos);
  }
}

TEST(AttentionLibrary, IsFoundInWheelsAndCondaEnvironments) {
  namespace fs = std::filesystem;
  const fs::path root = fs::path(::testing::TempDir()) / "cudnn";
  const fs::path wheel = root / "env/lib/python3.12/site-packages/nvidia/cudnn/lib/libcudnn.so.9";
  const fs::path conda = root / "conda/lib/libcudnn.so.9.19.0";
  for (const fs::path& file : {wheel, conda, conda.parent_path() / "libcudnn_graph.so.9"}) {
    fs::create_directories(file.parent_path());
    std::ofstream(file) << "x";
  }
  Environment environment;
  environment.root = (root / "system").string();
  environment.variables = {{"VIRTUAL_ENV", (root / "env").string()},
                           {"CONDA_PREFIX", (root / "conda").string()}};
  EXPECT_EQ(cudnn_candidates(environment),
            (std::vector<std::string>{wheel, conda, "libcudnn.so.9"}));
}

// Each of these tests runs in a process of its own, for which meson.build sets up the stand-in.
TEST_F(Attention, DISABLED_IsDeclined) {
  Case what(0);
  EXPECT_EQ(caller.call(&what), OPDOCK_UNSUPPORTED);
  const std::string words = std::getenv("WANTED_WORDS");
  EXPECT_NE(std::string(caller.f.error).find(words), std::string::npos) << caller.f.error;
  EXPECT_NE(caller.f.resolver.logged.find("attention is computed without cuDNN: attention-"),
            std::string::npos);
  caller.f.resolver.logged.clear();
  EXPECT_EQ(caller.call(&what), OPDOCK_UNSUPPORTED);
  EXPECT_NE(std::string(caller.f.error).find(words), std::string::npos) << caller.f.error;
  EXPECT_EQ(caller.f.resolver.logged, "");
}
TEST_F(Attention, DISABLED_ExecuteFails) {
  Case what(0);
  EXPECT_EQ(caller.call(&what), OPDOCK_DEVICE_ERROR);
  EXPECT_NE(std::string(caller.f.error)
                .find("cudnnBackendExecute: found CUDNN_STATUS_EXECUTION_FAILED (5000), no such "
                      "kernel, wanted the attention enqueued"),
            std::string::npos)
      << caller.f.error;
}

}  // namespace
}  // namespace opdock::testing_support
