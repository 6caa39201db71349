// Tests which headers and which compiler a source is compiled with.
// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "process.h"
#include "test_support.h"

namespace softgpu {
namespace {

// A plugin carries the vocabulary of the Opdock that packed it. The engine replaces the headers
// that belong to it with its own, however the plugin spells their names.
TEST(Compile, TheEnginesOwnHeadersWin) {
  for (const char* name : {"opdock/target_soft.cuh", "opdock/./target_soft.cuh", "softgpu/module.h",
                           "softgpu/device_calls.h"}) {
    KernelSource source;
    source.program =
        "#include \"opdock/device.cuh\"\nusing namespace opdock;\n"
        "extern \"C\" OPDOCK_KERNEL(32) k(int* out) { out[thread_index()] = warp_width(); }\n";
    source.headers = headers_with({});
    std::erase_if(source.headers, [&](const auto& header) { return header.first == name; });
    source.headers.emplace_back(name, "#error packed by an older Opdock\n");
    source.kernels = {"k"};
    source.arch = 900;
    std::string problem;
    const std::string library = compile_kernels(source, KERNEL_FOLDER, &problem);
    ASSERT_FALSE(library.empty()) << name << ": " << problem;
    const std::vector<Kernel> kernels = open_kernels(library, &problem);
    ASSERT_EQ(kernels.size(), 1u) << problem;
    const DeviceArray<int> out(32);
    EXPECT_EQ(finding_of(launch_of(kernels[0], 1, 32, out.data())), "");
    EXPECT_EQ(out.get(), std::vector<int>(32, 32));
  }
}

// All other headers are the plugin's.
TEST(Compile, APluginsOwnHeadersAreItsOwn) {
  KernelSource source;
  source.program = "#include \"opdock/device.cuh\"\n";
  source.headers = headers_with({});
  for (auto& [name, text] : source.headers)
    if (name == "opdock/vector.cuh") text = "#error as it was packed\n";
  std::string problem;
  EXPECT_EQ(compile_kernels(source, KERNEL_FOLDER, &problem), "");
  EXPECT_NE(problem.find("as it was packed"), problem.npos) << problem;
}

// Code that is the same for all sources is compiled once.
TEST(Compile, TheCallsOfTheEngineAreSharedByAllSources) {
  namespace fs = std::filesystem;
  std::string folder = testing::TempDir() + "softgpu-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  KernelSource source;
  source.headers = headers_with({});
  source.kernels = {"k"};
  const auto compile = [&](const std::string& value) {
    source.program =
        "#include \"opdock/device.cuh\"\nOPDOCK_KERNEL(1) k(int* y) { *y = " + value + "; }\n";
    std::string problem;
    const std::string library = compile_kernels(source, folder, &problem);
    EXPECT_NE(library, "") << problem;
    const std::vector<Kernel> kernels = open_kernels(library, &problem);
    ASSERT_EQ(kernels.size(), 1u) << problem;
    const DeviceArray<int> y(1);
    EXPECT_EQ(finding_of(launch_of(kernels[0], 1, 1, y.data())), "");
    EXPECT_EQ(std::to_string(y.get()[0]), value);
  };
  const auto objects = [&] {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(folder))
      if (entry.path().extension() == ".o") found.push_back(entry.path());
    return found;
  };
  compile("5");
  ASSERT_EQ(objects().size(), 1u);
  const fs::file_time_type made = fs::last_write_time(objects()[0]);
  compile("7");
  ASSERT_EQ(objects().size(), 1u);
  EXPECT_EQ(fs::last_write_time(objects()[0]), made);
  fs::remove_all(folder);
}

TEST(Programs, AreNotLookedForInTheWorkingDirectory) {
  namespace fs = std::filesystem;
  std::string folder = testing::TempDir() + "softgpu-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  std::ofstream(folder + "/compiler") << "#!/bin/false\n";
  fs::permissions(folder + "/compiler", fs::perms::owner_all);
  const std::string path = std::getenv("PATH");
  const fs::path before = fs::current_path();
  fs::current_path(folder);
  for (const char* entries : {":/usr/bin", ".", "/usr/bin:"}) {
    setenv("PATH", entries, 1);
    EXPECT_EQ(find_program("compiler"), "") << entries;
  }
  setenv("PATH", folder.c_str(), 1);
  EXPECT_EQ(find_program("compiler"), folder + "/compiler");
  setenv("PATH", path.c_str(), 1);
  fs::current_path(before);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace softgpu
