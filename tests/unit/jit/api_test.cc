// Tests compile.h and compile.hpp with the stand-in libcuda, in child processes.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "installed_compiler.h"
#include "opdock/compile.hpp"

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr char kProgram[] =
    "template <class T> __global__ void scale(T* x, T by, int n) { x[n] *= by; }\n"
    "extern \"C\" __global__ void fill(float* x, float with) { *x = with; }\n";

class CompileApi : public opdock_test::InstalledCompiler {
 protected:
  std::vector<json> launches() { return soft_child::recorded(record(), "launch"); }
  // Returns how often this process initialised the driver.
  int inits() {
    int count = 0;
    for (const json& event : soft_child::recorded(record(), "init"))
      count += event.at("pid") == getpid() ? 1 : 0;
    return count;
  }
  // Returns the codes of the last failure's reasons.
  std::vector<std::string> codes() {
    char* text = nullptr;
    EXPECT_EQ(opdock_compile_reasons_json(&text, error_, sizeof error_), OPDOCK_OK);
    std::vector<std::string> found;
    for (const json& reason : json::parse(text)) found.push_back(reason.at("code"));
    opdock_free(text);
    return found;
  }
  opdock_compile_options options() {
    opdock_compile_options all{};
    all.struct_size = sizeof all;
    all.source = kProgram;
    all.name = "mine.cu";
    all.device = {OPDOCK_CUDA, 0};
    return all;
  }
};

using Codes = std::vector<std::string>;

TEST_F(CompileApi, LaunchesByTemplatesName) {
  in_child([&] {
    opdock::Runtime runtime;
    opdock::CompileOptions how;
    how.device = {OPDOCK_CUDA, 0};
    how.kernels = {"scale<double>", "fill"};
    opdock::Module module(runtime, kProgram, how);
    EXPECT_EQ(module.image().substr(1, 3), "ELF");
    float* const memory = reinterpret_cast<float*>(0x1000);
    opdock::LaunchShape shape;
    shape.grid = {2, 3, 1};
    shape.block = {32, 1, 1};
    shape.shared_bytes = 64;
    module.kernel("fill")(shape, memory, 1.0f);
    // this kernel is named only now
    module.kernel("scale<int>")(shape, static_cast<int*>(nullptr), 3, -1);
    const std::vector<json> seen = launches();
    ASSERT_EQ(seen.size(), 2u);
    EXPECT_EQ(seen[0]["function"], "fill");
    EXPECT_EQ(seen[0]["args"], (json{"0010000000000000", "0000803f"}));
    EXPECT_EQ(seen[0]["grid"], (json{2, 3, 1}));
    EXPECT_EQ(seen[0]["shared"], 64);
    EXPECT_EQ(seen[1]["function"], "_Z5scaleIiEvPT_S0_i");
    EXPECT_EQ(seen[1]["args"], (json{"0000000000000000", "03000000", "ffffffff"}));
    // Compiling the same program again gives the same kernels, whichever module is asked.
    opdock::Module again(runtime, kProgram, how);
    EXPECT_EQ(again.kernel("fill").get(), module.kernel("fill").get());
    EXPECT_THROW(module.kernel("fill")(shape, memory), opdock::Error);  // an argument is missing
  });
}

TEST_F(CompileApi, TellsParameters) {
  in_child([&] {
    opdock::Runtime runtime;
    opdock::CompileOptions how;
    how.device = {OPDOCK_CUDA, 0};
    opdock::Module module(runtime, kProgram, how);
    opdock_kernel_info info{};
    info.struct_size = sizeof info;
    ASSERT_EQ(
        opdock_kernel_get_info(module.kernel("scale<double>").get(), &info, error_, sizeof error_),
        OPDOCK_OK);
    ASSERT_EQ(info.has_params, 1u);
    EXPECT_EQ(std::vector<uint32_t>(info.param_sizes, info.param_sizes + info.num_params),
              (std::vector<uint32_t>{8, 8, 4}));
    EXPECT_STREQ(info.image_name, "_Z5scaleIdEvPT_S0_i");
    EXPECT_EQ(info.device.index, 0);
  });
}

TEST_F(CompileApi, RefusesWhatCannotBe) {
  in_child([&] {
    opdock::Runtime runtime;
    opdock_module* module = nullptr;
    const auto compile = [&](const opdock_compile_options& all) {
      return opdock_compile(runtime.get(), &all, &module, error_, sizeof error_);
    };
    opdock_compile_options all = options();
    EXPECT_EQ(opdock_compile(nullptr, &all, &module, error_, sizeof error_),
              OPDOCK_INVALID_ARGUMENT);
    all.struct_size = 8;
    EXPECT_EQ(compile(all), OPDOCK_INVALID_ARGUMENT);
    all = options();
    all.source = nullptr;
    EXPECT_EQ(compile(all), OPDOCK_INVALID_ARGUMENT);
    all = options();
    all.num_kernels = 1;
    EXPECT_EQ(compile(all), OPDOCK_INVALID_ARGUMENT);
    EXPECT_NE(std::string(error_).find("options.kernels[0]"), std::string::npos) << error_;
    all = options();
    all.device = {OPDOCK_CPU, 0};
    EXPECT_EQ(compile(all), OPDOCK_INVALID_ARGUMENT);
    all = options();
    all.device.index = 7;
    EXPECT_EQ(compile(all), OPDOCK_DEVICE_ERROR) << error_;
    EXPECT_EQ(module, nullptr);

    const char* wrong[] = {"nothing"};
    all = options();
    all.kernels = wrong;
    all.num_kernels = 1;
    EXPECT_EQ(compile(all), OPDOCK_NOT_FOUND);
    EXPECT_EQ(codes(), Codes{"jit-kernel"});
    all = options();
    all.source = "__global__ void f() {\n  oops\n}\n";
    const char* f[] = {"f"};
    all.kernels = f;
    all.num_kernels = 1;
    EXPECT_EQ(compile(all), OPDOCK_INVALID_ARGUMENT);
    EXPECT_EQ(codes(), Codes{"jit-source"});
    EXPECT_NE(std::string(error_).find("mine.cu(2)"), std::string::npos) << error_;

    all = options();
    ASSERT_EQ(compile(all), OPDOCK_OK) << error_;
    EXPECT_EQ(codes(), Codes{}) << "success forgets";
    opdock_kernel* kernel = nullptr;
    EXPECT_EQ(opdock_module_kernel(module, "nothing", &kernel, error_, sizeof error_),
              OPDOCK_NOT_FOUND);
    EXPECT_EQ(codes(), Codes{"jit-kernel"});
    ASSERT_EQ(opdock_module_kernel(module, "fill", &kernel, error_, sizeof error_), OPDOCK_OK);
    opdock_module_free(module);  // the kernels stay valid

    opdock_launch launch{};
    EXPECT_EQ(opdock_launch_kernel(kernel, nullptr, &launch, error_, sizeof error_),
              OPDOCK_INVALID_ARGUMENT);
    launch.struct_size = sizeof launch;
    EXPECT_EQ(opdock_launch_kernel(kernel, nullptr, &launch, error_, sizeof error_),
              OPDOCK_INVALID_ARGUMENT);
    for (int i = 0; i < 3; ++i) launch.grid[i] = launch.block[i] = 1;
    launch.num_args = 2;
    EXPECT_EQ(opdock_launch_kernel(kernel, nullptr, &launch, error_, sizeof error_),
              OPDOCK_INVALID_ARGUMENT);
    void* x = nullptr;
    float with = 1;
    void* args[] = {&x, &with};
    launch.args = args;
    EXPECT_EQ(opdock_launch_kernel(kernel, nullptr, &launch, error_, sizeof error_), OPDOCK_OK)
        << error_;
    launch.block[0] = 2048;
    EXPECT_EQ(opdock_launch_kernel(kernel, nullptr, &launch, error_, sizeof error_),
              OPDOCK_DEVICE_ERROR);
    launch.block[0] = 1;
    EXPECT_EQ(opdock_launch_kernel(kernel, nullptr, &launch, error_, sizeof error_), OPDOCK_OK);
  });
}

TEST_F(CompileApi, AGpuNewerThanEveryCompilerGetsPtxUnlessAnArchitectureIsNamed) {
  gpus_ = R"({"cuda": 13000, "gpus": [{"arch": "sm_200"}]})";
  in_child([&] {
    opdock::Runtime runtime;
    opdock::CompileOptions how;
    how.device = {OPDOCK_CUDA, 0};
    how.kernels = {"fill"};
    opdock::Module module(runtime, kProgram, how);
    EXPECT_NE(module.image().find(".target sm_"), std::string_view::npos);
    module.kernel("fill");
    module.kernel("scale<double>");  // not named beforehand
    how.arch = "sm_200";
    EXPECT_THROW(opdock::Module(runtime, kProgram, how), opdock::Error);
    const Codes found = codes();
    EXPECT_NE(std::find(found.begin(), found.end(), "jit-arch"), found.end());
  });
}

TEST_F(CompileApi, ImagesForAnArchitectureAlone) {
  in_child([&] {
    opdock::Runtime runtime;
    opdock::CompileOptions how;
    how.arch = "compute_80";
    opdock::Module module(runtime, kProgram, how);
    EXPECT_NE(module.image().find(".target sm_80"), std::string_view::npos);
    EXPECT_THROW(module.kernel("fill"), opdock::Error);
    // Never compiles in this process, where NVRTC 13 would initialise the driver before a fork.
    opdock::Installed here = opdock::installed();
    here.root = folder_.string();  // a folder without opdock-compile
    opdock::use_installed(here);
    how.arch = "compute_90";
    EXPECT_THROW(opdock::Module(runtime, kProgram, how).image(), opdock::Error);
    EXPECT_EQ(codes(), Codes{"jit-worker"});
    EXPECT_EQ(inits(), 0);
  });
}

// Warms the shipped plugins for GPUs that are not here; plugins on such GPUs would request exactly
// these images.
TEST_F(CompileApi, WarmsWhatPluginsCarry) {
  fs::create_directory(folder_ / "plugins");
  fs::copy_file(PLUGINS_FOLDER "/noop.so", folder_ / "plugins" / "noop.so");
  in_child([&] {
    opdock::Runtime runtime((folder_ / "plugins").string());
    const auto warm = [&](const char* archs) {
      char* text = nullptr;
      EXPECT_EQ(opdock_warm_json(runtime.get(), archs, 2, &text, error_, sizeof error_), OPDOCK_OK)
          << error_;
      const json answer = json::parse(text);
      opdock_free(text);
      std::vector<std::string> found;
      for (const json& image : answer.at("images")) {
        found.push_back(image.at("arch").get<std::string>() + " " +
                        image.at("outcome").get<std::string>());
        EXPECT_EQ(image.at("reasons"), json::array()) << image;
      }
      return found;
    };
    EXPECT_EQ(warm("8.0;12.0"), (Codes{"sm_80 compiled", "sm_120a compiled"}));
    EXPECT_EQ(warm("8.0 8.6"), (Codes{"sm_80 cached", "sm_86 compiled"}));
    EXPECT_EQ(warm(nullptr), Codes{"sm_90a compiled"});  // the stand-in's GPU
    EXPECT_EQ(warm("9.0"), Codes{"sm_90a cached"});
    char* text = nullptr;
    EXPECT_EQ(opdock_warm_json(runtime.get(), "nine", 1, &text, error_, sizeof error_),
              OPDOCK_INVALID_ARGUMENT);
    EXPECT_NE(std::string(error_).find("nine"), std::string::npos) << error_;
  });
}

}  // namespace
