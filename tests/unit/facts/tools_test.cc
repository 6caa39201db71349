// Tests finding tools in made-up folders.
// SPDX-License-Identifier: Apache-2.0
#include "facts/tools.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "child.h"
#include "facts/nvrtc_search.h"
#include "facts/torch.h"

namespace opdock::test {
namespace {

namespace fs = std::filesystem;

class Tools : public testing::Test {
 protected:
  Tools() {
    environment_.root = folder_.path();
    environment_.opt = folder_.path() / "opt";
    environment_.variables["PATH"] = at("bin") + ":relative/bin::" + at("more");
  }

  void executable(const std::string& name) {
    folder_.write(name, "#!/bin/false\n");
    fs::permissions(folder_.path() / name, fs::perms::owner_all);
  }

  void link(const std::string& name, const std::string& target) {
    fs::create_directories((folder_.path() / name).parent_path());
    fs::create_symlink(target, folder_.path() / name);
  }

  Tool tool(const std::string& name) {
    const std::vector<Tool> tools = find_tools(environment_);
    return *std::find_if(tools.begin(), tools.end(),
                         [&](const Tool& tool) { return tool.name == name; });
  }

  // Returns the head of a shared object of this machine; the search looks at nothing else.
  static std::string elf() {
    std::ifstream self("/proc/self/exe", std::ios::binary);
    std::string head(64, '\0');
    self.read(head.data(), 64);
    return head;
  }

  std::string at(const std::string& name) { return folder_.path() / name; }

  TemporaryFolder folder_;
  Environment environment_;
};

TEST_F(Tools, NothingIsAnOrdinaryFact) {
  for (const Tool& tool : find_tools(environment_)) {
    EXPECT_EQ(tool.path, "") << tool.name;
    EXPECT_EQ(tool.version, "") << tool.name;
    EXPECT_NE(tool.purpose, "") << tool.name;
    EXPECT_NE(tool.package, "") << tool.name;
  }
}

TEST_F(Tools, CompilersTellTheirVersionInTheirNames) {
  executable("bin/x86_64-linux-gnu-g++-12");
  link("bin/g++", "x86_64-linux-gnu-g++-12");
  executable("usr/lib/llvm-14/bin/clang");
  link("more/clang++", at("usr/lib/llvm-14/bin/clang"));
  EXPECT_EQ(tool("g++").path, at("bin/g++"));
  EXPECT_EQ(tool("g++").version, "12");
  EXPECT_EQ(tool("clang++").version, "14");
}

TEST_F(Tools, AFileThatIsNotExecutableIsNone) {
  folder_.write("bin/g++", "");
  fs::create_directories(at("bin/meson"));
  EXPECT_EQ(tool("g++").path, "");
  EXPECT_EQ(tool("meson").path, "");
}

TEST_F(Tools, NvccFromCudaHomeFirst) {
  executable("bin/nvcc");
  executable("cuda/bin/nvcc");
  folder_.write("cuda/version.json",
                R"({"cuda": {"version": "12.9.1"}, "cuda_nvcc": {"version": "12.9.86"}})");
  EXPECT_EQ(tool("nvcc").path, at("bin/nvcc"));
  environment_.variables["CUDA_HOME"] = at("cuda");
  EXPECT_EQ(tool("nvcc").path, at("cuda/bin/nvcc"));
  EXPECT_EQ(tool("nvcc").version, "12.9.86");
}

TEST_F(Tools, NvccByItsHeader) {
  executable("usr/local/cuda-13.0/bin/nvcc");
  folder_.write("usr/local/cuda-13.0/include/cuda.h", "\n#define CUDA_VERSION 13000\n");
  EXPECT_EQ(tool("nvcc").version, "13.0");
  folder_.write("usr/local/cuda-13.0/version.json", "not json");
  EXPECT_EQ(tool("nvcc").version, "13.0");
}

TEST_F(Tools, TorchAndTheCudaThatItWasBuiltFor) {
  const MachineFacts machine;
  EXPECT_EQ(find_torch(environment_, machine).folder, "");
  EXPECT_FALSE(find_torch(environment_, machine).cuda);
  environment_.variables["VIRTUAL_ENV"] = at("env");
  const std::string site = "env/lib/python3.11/site-packages/";
  fs::create_directories(folder_.path() / (site + "torch-2.9.1.dist-info"));
  for (const auto& [line, cuda] : {std::pair{"cuda: Optional[str] = '12.8'", "12.8"},
                                   {"cuda = '13.0'", "13.0"},
                                   {"cuda: Optional[str] = None", ""},
                                   {"", ""}}) {
    folder_.write(site + "torch/version.py", std::string("debug = False\n") + line + "\n");
    const TorchInstall torch = find_torch(environment_, machine);
    EXPECT_EQ(torch.folder, at(site + "torch"));
    EXPECT_EQ(torch.version.text(), "2.9.1");
    EXPECT_EQ(torch.cuda ? torch.cuda->text() : "", cuda);
  }
}

// A toolkit consists of several Python packages; nvcc without the others cannot compile.
TEST_F(Tools, NvccOfPythonsPackagesCountsWhereTheyAreWhole) {
  const std::string site = "env/lib/python3.11/site-packages/nvidia/";
  environment_.variables["VIRTUAL_ENV"] = at("env");
  const auto make = [&](const std::string& wheel, const std::string& headers) {
    executable(site + wheel + "/bin/nvcc");
    folder_.write(site + wheel + "/include/cuda_runtime.h", "");
    folder_.write(site + wheel + "/lib/libcudart_static.a", "");
    if (!headers.empty()) folder_.write(site + wheel + "/" + headers, "");
  };
  make("cu13", "");
  EXPECT_EQ(tool("nvcc").path, "");
  make("cu13", "include/cccl/nv/target");
  EXPECT_EQ(tool("nvcc").path, at(site + "cu13/bin/nvcc"));
  make("cu14", "include/nv/target");
  folder_.write(site + "cublas/lib/libcublas.so.13", "");
  EXPECT_EQ(tool("nvcc").path, at(site + "cu14/bin/nvcc"));
  fs::remove(folder_.path() / (site + "cu14/lib/libcudart_static.a"));
  EXPECT_EQ(tool("nvcc").path, at(site + "cu13/bin/nvcc"));
  executable("more/nvcc");  // PATH comes before the packages
  EXPECT_EQ(tool("nvcc").path, at("more/nvcc"));
}

TEST_F(Tools, TheNewestOfSeveralToolkits) {
  for (const char* version : {"9.2", "12.9", "13.0"}) {
    executable(std::string("usr/local/cuda-") + version + "/bin/nvcc");
  }
  EXPECT_EQ(tool("nvcc").path, at("usr/local/cuda-13.0/bin/nvcc"));
}

TEST_F(Tools, PythonsPackages) {
  executable("venv/bin/python3.11");
  link("venv/bin/python3", "python3.11");
  executable("venv/bin/meson");
  const std::string site = "venv/lib/python3.11/site-packages/";
  folder_.write(site + "torch/version.py", "__version__ = '2.13.0+cpu'\n");
  folder_.write(site + "torch-2.13.0+cpu.dist-info/METADATA", "");
  folder_.write(site + "meson-1.7.0.dist-info/METADATA", "");
  folder_.write(site + "nvidia/cuda_nvrtc/lib/libnvrtc.so.12", elf());
  folder_.write(site + "nvidia_cuda_nvrtc_cu12-12.9.86.dist-info/METADATA", "");
  folder_.write(site + "nvidia/cudnn/lib/libcudnn.so.9", elf());
  folder_.write(site + "nvidia_cudnn_cu13-9.19.0.56.dist-info/METADATA", "");
  environment_.variables["VIRTUAL_ENV"] = at("venv");
  environment_.variables["PATH"] = at("venv/bin");
  EXPECT_EQ(tool("python").version, "3.11");
  EXPECT_EQ(tool("torch").version, "2.13.0+cpu");
  EXPECT_EQ(tool("meson").version, "1.7.0");
  EXPECT_EQ(tool("nvrtc").version, "12.9.86");
  EXPECT_EQ(tool("nvrtc").path, at(site + "nvidia/cuda_nvrtc/lib/libnvrtc.so.12"));
  EXPECT_EQ(tool("cudnn").path, at(site + "nvidia/cudnn/lib/libcudnn.so.9"));
  EXPECT_EQ(tool("cudnn").version, "9.19.0.56");
}

TEST_F(Tools, NvrtcOfANewerWheel) {
  executable("venv/bin/python3");
  const std::string site = "venv/lib/python3.13/site-packages/";
  folder_.write(site + "nvidia/cu14/lib/libnvrtc.so.14", elf());
  folder_.write(site + "nvidia_cuda_nvrtc-14.1.7.dist-info/METADATA", "");
  environment_.variables["PATH"] = at("venv/bin");
  EXPECT_EQ(tool("nvrtc").path, at(site + "nvidia/cu14/lib/libnvrtc.so.14"));
  EXPECT_EQ(tool("nvrtc").version, "14.1.7");
}

// Otherwise libraries below the working directory would be opened.
TEST_F(Tools, TheWorkingDirectoryIsNoPythonWhateverPathSays) {
  executable("python3");
  executable("bin/python3");
  folder_.write("lib/python3.13/site-packages/nvidia/cu14/lib/libnvrtc.so.14", elf());
  const fs::path before = fs::current_path();
  fs::current_path(folder_.path());
  for (const char* path : {":/nowhere", ".", "bin", "/nowhere::"}) {
    environment_.variables["PATH"] = path;
    for (const std::string& candidate : nvrtc_candidates({}, environment_, nullptr))
      EXPECT_EQ(candidate.find("libnvrtc.so.14"), candidate.npos) << path << " " << candidate;
  }
  fs::current_path(before);
}

TEST_F(Tools, TheDriversLibraries) {
  folder_.write("lib/libcuda.so.580.159.03", elf());
  link("lib/libcuda.so.1", "libcuda.so.580.159.03");
  folder_.write("lib/libnvidia-ml.so.1", "not a library");
  environment_.cuda = at("lib/libcuda.so.1");
  environment_.nvml = at("lib/libnvidia-ml.so.1");
  EXPECT_EQ(tool("libcuda").path, at("lib/libcuda.so.1"));
  EXPECT_EQ(tool("libcuda").version, "580.159.03");
  EXPECT_EQ(tool("nvml").path, "");
}

TEST_F(Tools, HipsLibraries) {
  folder_.write("usr/lib/x86_64-linux-gnu/libhiprtc.so.5.2.21153", "");
  link("usr/lib/x86_64-linux-gnu/libhiprtc.so.5", "libhiprtc.so.5.2.21153");
  EXPECT_EQ(tool("hiprtc").version, "5.2.21153");
  executable("usr/bin/hipcc");
  folder_.write(
      "usr/share/hip/version",
      "# made by cmake\nHIP_VERSION_MAJOR=5\nHIP_VERSION_MINOR=2\nHIP_VERSION_PATCH=21153\n");
  environment_.variables["PATH"] = at("usr/bin");
  EXPECT_EQ(tool("hipcc").version, "5.2.21153");
  executable("opt/rocm-6.2.0/bin/hipcc");
  folder_.write("opt/rocm-6.2.0/.info/version", "6.2.0-66\n");
  folder_.write("opt/rocm-6.2.0/lib/libhiprtc.so.6", "");
  EXPECT_EQ(tool("hipcc").version, "6.2.0-66");
  EXPECT_EQ(tool("hiprtc").path, at("opt/rocm-6.2.0/lib/libhiprtc.so.6"));
}

TEST_F(Tools, HiprtcInsideTheRuntimeLibrary) {
  folder_.write("usr/lib/x86_64-linux-gnu/libamdhip64.so.5.2.21153", "");
  link("usr/lib/x86_64-linux-gnu/libamdhip64.so.5", "libamdhip64.so.5.2.21153");
  EXPECT_EQ(tool("hiprtc").version, "5.2.21153");
  fs::remove(at("usr/lib/x86_64-linux-gnu/libamdhip64.so.5"));
  fs::remove(at("usr/lib/x86_64-linux-gnu/libamdhip64.so.5.2.21153"));
  folder_.write("usr/lib/x86_64-linux-gnu/libamdhip64.so.6", "");  // contains no hipRTC
  EXPECT_EQ(tool("hiprtc").path, "");
}

}  // namespace
}  // namespace opdock::test
