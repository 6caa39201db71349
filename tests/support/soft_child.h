// Helpers for tests that use the stand-in drivers: run each test in a child process, because a
// driver's state belongs to the process, and read what the stand-in recorded there.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace soft_child {

// Runs `body` in a forked child; the test fails if an expectation fails there.
inline void run(const std::function<void()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    body();
    std::fflush(nullptr);
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "the child's failures are above";
}

// Loads the stand-ins for NVIDIA's libraries from `folder`, where they lie under their SONAMEs, so
// that later dlopen calls by name find them. Returns the handle of libcuda.so.1.
inline void* load_cuda(const std::string& folder) {
  void* cuda = nullptr;
  for (const char* name : {"libcuda.so.1", "libnvidia-ml.so.1"}) {
    void* const library = dlopen((folder + "/" + name).c_str(), RTLD_NOW);
    EXPECT_NE(library, nullptr) << dlerror();
    if (cuda == nullptr) cuda = library;
  }
  return cuda;
}

// Returns the objects whose "event" is `event` from the file that a stand-in wrote
// (OPDOCK_SOFTGPU_RECORD names it), one object per line.
inline std::vector<nlohmann::json> recorded(const std::string& path, const std::string& event) {
  std::vector<nlohmann::json> found;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    nlohmann::json object = nlohmann::json::parse(line);
    if (object.at("event") == event) found.push_back(std::move(object));
  }
  return found;
}

}  // namespace soft_child
