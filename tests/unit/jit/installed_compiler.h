// A fixture for tests that compile with an NVRTC as an installed library does, in child processes
// with the stand-in libcuda.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <functional>
#include <string>

#include "base/installed.h"
#include "jit/nvrtc_files.h"
#include "opdock/compile.h"
#include "support/soft_child.h"

namespace opdock_test {

class InstalledCompiler : public testing::Test {
 protected:
  void SetUp() override {
    if (opdock::find_nvrtc_files({NVRTC_SEARCH}, opdock::current_environment(), nullptr).empty()) {
      GTEST_SKIP() << "no NVRTC is installed";
    }
    opdock::Installed here = opdock::installed();
    // has opdock-compile, which an installed library finds next to itself
    here.root = INSTALLED_ROOT;
    opdock::use_installed(here);
    std::string pattern = BUILD_FOLDER "/test-jit-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  // Runs `body` in a child, because the driver's state belongs to the process. The cache
  // stays, the record is a new one.
  void in_child(const std::function<void()>& body) {
    soft_child::run([&] {
      setenv("OPDOCK_SOFTGPU", gpus_, 1);
      setenv("OPDOCK_SOFTGPU_RECORD", record().c_str(), 1);
      setenv("OPDOCK_CACHE_DIR", (folder_ / "cache").c_str(), 1);
      setenv("LD_LIBRARY_PATH", SOFTGPU_FOLDER, 1);
      unsetenv("CUDA_VISIBLE_DEVICES");
      std::filesystem::remove(record());
      driver_ = soft_child::load_cuda(SOFTGPU_FOLDER);
      EXPECT_EQ(opdock_add_compiler_folder(NVRTC_SEARCH, error_, sizeof error_), OPDOCK_OK);
      body();
    });
  }
  std::filesystem::path record() const { return folder_ / "record"; }

  const char* gpus_ = R"({"cuda": 13000, "gpus": [{"arch": "sm_90"}]})";  // of the next child
  std::filesystem::path folder_;
  void* driver_ = nullptr;  // libcuda.so.1, in a child
  char error_[8192] = "";
};

}  // namespace opdock_test
