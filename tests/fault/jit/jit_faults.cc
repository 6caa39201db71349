// Tests what goes wrong with compilers, sources and cached images: each case has its code, leaves
// the host alive, and the next attempt succeeds.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>

#include "jit/plugin_source.h"
#include "support/soft_child.h"
#include "unit/jit/support.h"

namespace opdock_test {
namespace {

constexpr char kKernels[] =
    "template <class T> __global__ void f(T* x, int n) { x[n] = T(1); }\n"
    "extern \"C\" __global__ void g(float* x) { *x = 2; }\n";

std::vector<NvrtcFile> real_nvrtcs() {
  return find_nvrtc_files({NVRTC_SEARCH}, current_environment(), nullptr);
}

class JitFault : public testing::Test {
 protected:
  JitFault() {
    context.cache = &cache;
    context.nvrtcs = &nvrtcs;
    static int number = 0;
    request.name = "user.cu";
    request.program_name = "user.cu";
    request.program = kKernels + ("// " + std::to_string(++number)) + "\n";
    request.kernels = {"f<float>", "g"};
    request.arch = "sm_90a";
  }

  CompiledImagePtr ask() {
    reasons.clear();
    return compile_image(request, context, &reasons);
  }
  // Expects a refusal with this code and text, and that nothing is cached.
  void refused(Code code, const std::string& words) {
    EXPECT_EQ(ask(), nullptr);
    EXPECT_TRUE(has(reasons, code)) << all_text(reasons);
    EXPECT_NE(all_text(reasons).find(words), std::string::npos) << words << "\n"
                                                                << all_text(reasons);
    EXPECT_TRUE(cache.entries.empty()) << "nothing faulty is kept";
  }
  void works() { EXPECT_NE(ask(), nullptr) << all_text(reasons); }

  std::vector<NvrtcFile> nvrtcs = {{FAKE_NVRTC_12, Version{12, 9}, "aa12", ""}};
  MemoryCache cache;
  JitContext context;
  CompileRequest request;
  std::vector<Reason> reasons;
  TemporaryFolder folder;
};

// ---- the compiler

TEST_F(JitFault, NoCompiler) {
  const std::vector<NvrtcFile> good = nvrtcs;
  nvrtcs.clear();
  refused(Code::kJitNoCompiler, "pip install nvidia-cuda-nvrtc-cu12");
  nvrtcs = good;
  works();
}

TEST_F(JitFault, CompilerGone) {
  nvrtcs[0].path = (folder.path() / "libnvrtc.so.12").string();
  refused(Code::kJitNoCompiler, "libnvrtc.so.12: No such file");
  fs::copy_file(FAKE_NVRTC_12, nvrtcs[0].path);  // restores the compiler
  works();
}

TEST_F(JitFault, CompilerUnreadable) {
  nvrtcs[0].path = folder.write("libnvrtc.so.12", "").string();
  fs::permissions(nvrtcs[0].path, fs::perms::none);
  fs::permissions(folder.path(), fs::perms{0755});
  const pid_t child = fork();
  if (child == 0) {
    // Root can read every file, so the child becomes another user.
    if (getuid() == 0 && setresuid(65534, 65534, 65534) != 0) _exit(2);
    refused(Code::kJitNoCompiler, "Permission denied");
    _exit(HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(JitFault, CompilerIsAFolder) {
  nvrtcs[0].path = (folder.path() / "libnvrtc.so.12").string();
  fs::create_directory(nvrtcs[0].path);
  refused(Code::kJitNoCompiler, "no shared object");
}

TEST_F(JitFault, CompilerIsAText) {
  nvrtcs[0].path = folder.write("libnvrtc.so.12", "INPUT(libnvrtc.so.12.9)\n").string();
  refused(Code::kJitNoCompiler, "no shared object");
}

TEST_F(JitFault, CompilerIsAnotherLibrary) {
  nvrtcs[0].path = OTHER_LIBRARY;
  refused(Code::kJitNoCompiler, "has no function nvrtcVersion");
}

TEST_F(JitFault, CompilerIsTruncated) {
  // The loader would kill the process if it got this file.
  nvrtcs[0].path = (folder.path() / "libnvrtc.so.12").string();
  fs::copy_file(FAKE_NVRTC_12, nvrtcs[0].path);
  fs::resize_file(nvrtcs[0].path, 5000);
  refused(Code::kJitNoCompiler, "ends too early");
  fs::remove(nvrtcs[0].path);
  fs::copy_file(FAKE_NVRTC_12, nvrtcs[0].path);
  works();
}

TEST_F(JitFault, BehindABrokenNewCompilerTheOlderOneIsUsed) {
  nvrtcs.insert(nvrtcs.begin(), {folder.write("libnvrtc.so.13", "").string(), {13, 0}, "x", ""});
  ASSERT_NE(ask(), nullptr) << all_text(reasons);
  EXPECT_EQ(ask()->maker, "NVRTC 12.9");
}

TEST_F(JitFault, CompilerWithoutMemory) {
  request.program += "// NOMEMORY\n";
  refused(Code::kJitFailed, "FAKE_ERROR");
  request.program.resize(request.program.size() - 12);
  works();
}

TEST_F(JitFault, CompilerNewerThanTheDriver) {
  context.cuda_driver = Version{11, 8};
  refused(Code::kJitDriver, "pip install nvidia-cuda-nvrtc-cu11");
  context.cuda_driver = Version{12, 0};
  works();
}

TEST_F(JitFault, ArchitectureUnknownToTheCompiler) {
  request.arch = "sm_110a";
  refused(Code::kJitArch, "which knows sm_50 to sm_120");
  request.arch = "sm_120f";
  works();
}

TEST_F(JitFault, SwitchedOff) {
  context.denied = "OPDOCK_JIT=never";
  refused(Code::kJitPolicy, "OPDOCK_JIT=never");
  EXPECT_EQ(reasons.size(), 1u) << "nothing else matters then";
  context.denied.clear();
  works();
  context.denied = "OPDOCK_JIT=never";
  works();  // what is in the cache may still be used
}

TEST_F(JitFault, Stopped) {
  Stop stop;
  stop.stop = true;
  context.progress = &stop;
  request.program += "// SLEEP=5000\n";
  refused(Code::kCancelled, "stop");
  stop.stop = false;
  request.program.resize(request.program.size() - 14);
  works();
}

// ---- the request

TEST_F(JitFault, ArchitectureIsNone) {
  for (const char* arch : {"", "sm_", "hopper", "9.0a", "gfx90a", "sm_90b", "compute_9x"}) {
    request.arch = arch;
    refused(Code::kJitOption, std::string("\"") + arch + "\"");
  }
}

TEST_F(JitFault, OptionsOfOpdocksOwn) {
  for (const char* option : {"--gpu-architecture=sm_80", "-arch=sm_80", "--offload-arch=gfx90a"}) {
    request.options = {option};
    refused(Code::kJitOption, option);
  }
}

TEST_F(JitFault, OptionsThatAreNone) {
  request.options = {""};
  refused(Code::kJitOption, "empty option");
  request.options = {std::string("-DX\0=1", 6)};
  refused(Code::kJitOption, "NUL");
}

TEST_F(JitFault, NothingToCompile) {
  request.program.clear();
  refused(Code::kJitSource, "an empty program");
}

TEST_F(JitFault, TwoHeadersOfOneName) {
  request.headers = {{"a.h", ""}, {"a.h", "1"}};
  refused(Code::kJitSource, "two headers called \"a.h\"");
}

TEST_F(JitFault, SourceThatIsNotThere) {
  request.sources = {"b.cuh"};
  refused(Code::kJitSource, "\"b.cuh\"");
}

TEST_F(JitFault, KernelWithoutAName) {
  request.kernels = {""};
  refused(Code::kJitKernel, "empty kernel name");
}

// ---- the source, with every real NVRTC of this machine

class JitSource : public JitFault {
 protected:
  void SetUp() override {
    if (all.empty()) GTEST_SKIP() << "no NVRTC is installed";
  }
  void each(const std::function<void()>& body) {
    for (const NvrtcFile& one : all) {
      SCOPED_TRACE(one.path);
      nvrtcs = {one};
      cache.entries.clear();
      body();
    }
  }
  std::vector<NvrtcFile> all = real_nvrtcs();
};

TEST_F(JitSource, ErrorsNameTheUsersFileAndLine) {
  const std::string good = request.program;
  each([&] {
    request.program = good + "__global__ void bad() {\n  no_such_function();\n}\n";
    refused(Code::kJitSource, "user.cu(5): error: identifier \"no_such_function\" is undefined");
    request.program = good + "#line 70 \"generated.py\"\n  int x = ;\n";
    refused(Code::kJitSource, "generated.py(70): error");
    request.program = good;
    works();
  });
}

TEST_F(JitSource, ErrorsInHeadersNameTheHeader) {
  each([&] {
    request.headers = {{"mine/k.cuh", "\n\nthis is no code\n"}};
    request.program = "#include \"mine/k.cuh\"\n";
    refused(Code::kJitSource, "mine/k.cuh(3): error");
  });
}

TEST_F(JitSource, MissingHeader) {
  const std::string good = request.program;
  each([&] {
    request.program = "#include <no/such/header.h>\n" + good;
    refused(Code::kJitSource, "user.cu(1)");
    request.program = good;
  });
}

TEST_F(JitSource, UnknownOption) {
  each([&] {
    request.options = {"--no-such-option"};
    refused(Code::kJitOption, "--no-such-option");
    request.options = {"-DA=1", "--use_fast_math"};
    works();
  });
}

TEST_F(JitSource, KernelThatIsNotThere) {
  each([&] {
    request.kernels = {"h"};
    refused(Code::kJitKernel, "identifier \"h\" is undefined");
    request.kernels = {"f"};  // a template without its arguments
    refused(Code::kJitKernel, "f");
    request.kernels = {"f<float", "g"};
    refused(Code::kJitKernel, "f<float");
    request.kernels = {"f<float>", "g"};
    works();
  });
}

TEST_F(JitSource, ToolkitHeadersAreFound) {
  bool any = false;
  const std::string good = request.program;
  each([&] {
    if (nvrtcs[0].include.empty()) return;
    any = true;
    request.program =
        good + "#include <cuda_fp16.h>\n__global__ void h(__half* x) { *x = 1.0f; }\n";
    request.kernels = {"h"};
    works();
  });
  if (!any) GTEST_SKIP() << "no NVRTC here has its toolkit's headers";
}

// ---- cached images

class JitCached : public JitFault {
 protected:
  // Damages the cache entry. Expects the next request to set it aside and to compile again.
  void break_it(const std::function<void(MemoryEntry*)>& how, const std::string& words) {
    works();
    ASSERT_EQ(cache.entries.size(), 1u);
    how(cache.entries[0].get());
    const CompiledImagePtr image = ask();
    ASSERT_NE(image, nullptr) << all_text(reasons);
    EXPECT_FALSE(image->from_cache);
    ASSERT_EQ(cache.aside.size(), 1u);
    EXPECT_EQ(cache.aside[0].code, Code::kJitImage);
    EXPECT_NE(to_text(cache.aside[0]).find(words), std::string::npos) << to_text(cache.aside[0]);
    EXPECT_TRUE(has(reasons, Code::kJitImage)) << "it is reported";
    ASSERT_EQ(cache.entries.size(), 1u);
  }
  static std::string* blob(MemoryEntry* entry, const std::string& name) {
    for (CacheBlob& one : entry->blobs_) {
      if (one.name == name) return &one.bytes;
    }
    return nullptr;
  }
};

TEST_F(JitCached, WithoutAnImage) {
  break_it([](MemoryEntry* e) { e->blobs_.erase(e->blobs_.begin()); }, "without an image");
}
TEST_F(JitCached, WithAnEmptyImage) {
  break_it([](MemoryEntry* e) { blob(e, "image")->clear(); }, "without an image");
}
TEST_F(JitCached, WithoutNames) {
  break_it([](MemoryEntry* e) { e->blobs_.erase(e->blobs_.begin() + 1); }, "kernels' names");
}
TEST_F(JitCached, WithNamesCutOff) {
  break_it([](MemoryEntry* e) { blob(e, "names")->pop_back(); }, "kernels' names");
}
TEST_F(JitCached, WithHalfAPair) {
  break_it([](MemoryEntry* e) { *blob(e, "names") = std::string("f<float>\0", 9); },
           "kernels' names");
}
TEST_F(JitCached, WithoutTheKernel) {
  break_it([](MemoryEntry* e) { *blob(e, "names") = std::string("g\0g\0", 4); },
           "without kernel \"f<float>\"");
}

// ---- on a device: the stand-in for libcuda, in a child

class JitDevice : public JitFault {
 protected:
  void SetUp() override {
    nvrtcs = real_nvrtcs();
    if (nvrtcs.empty()) GTEST_SKIP() << "no NVRTC is installed";
  }
  void in_child(const std::string& failures, const std::function<void()>& body) {
    soft_child::run([&] {
      const std::string gpus =
          "{\"cuda\": 13000, \"gpus\": [{\"arch\": \"sm_90\"}], \"failures\": [" + failures + "]}";
      setenv("OPDOCK_SOFTGPU", gpus.c_str(), 1);
      EXPECT_NE(dlopen(SOFTGPU_CUDA, RTLD_NOW), nullptr) << dlerror();
      context.cuda_driver = Version{13, 0};
      gpu.backend = Backend::kCuda;
      gpu.major = 9;
      gpu.arch = "sm_90";
      driver_for(Backend::kCuda, &driver);
      body();
    });
  }
  std::unique_ptr<Kernels> load() {
    reasons.clear();
    return load_compiled(request, driver, {OPDOCK_CUDA, 0}, context, &image, &reasons);
  }
  void loads() {
    const std::unique_ptr<Kernels> kernels = load();
    ASSERT_NE(kernels, nullptr) << all_text(reasons);
    finds(kernels.get(), "f<float>");
    finds(kernels.get(), "g");
  }
  void finds(Kernels* kernels, const char* name) {
    void* previous = nullptr;
    ASSERT_TRUE(driver->enter(0, nullptr, &previous).ok());
    opdock_kernel* kernel = nullptr;
    const Status found = kernels->find(name, &kernel);
    EXPECT_TRUE(found.ok()) << found.text;
    driver->leave(previous);
  }
  // Replaces the cached image by these bytes.
  void replace(const std::string& bytes) {
    works();
    for (CacheBlob& blob : cache.entries.at(0)->blobs_) {
      if (blob.name == "image") blob.bytes = bytes;
    }
  }
  // Replaces the cached image by that of another request.
  void replace(const CompileRequest& other) {
    std::vector<Reason> why;
    const CompiledImagePtr wrong = compile_image(other, context, &why);
    ASSERT_NE(wrong, nullptr) << all_text(why);
    cache.entries.clear();
    replace(text(wrong->bytes));
  }
  void made_anew(const std::string& words) {
    loads();
    ASSERT_NE(image, nullptr);
    EXPECT_FALSE(image->from_cache);
    ASSERT_EQ(cache.aside.size(), 1u);
    EXPECT_NE(to_text(cache.aside[0]).find(words), std::string::npos) << to_text(cache.aside[0]);
    image.reset();
    loads();
    EXPECT_TRUE(image->from_cache) << "the good one is kept";
  }

  Gpu gpu{};
  Driver* driver = nullptr;
  CompiledImagePtr image;
};

TEST_F(JitDevice, CachedRubbishIsMadeAnew) {
  in_child("", [&] {
    replace("this is no cubin, whatever the cache says");
    made_anew("INVALID_IMAGE");
  });
}

TEST_F(JitDevice, CachedImageOfAnotherArchitectureIsMadeAnew) {
  in_child("", [&] {
    CompileRequest other = request;
    other.arch = "sm_100a";
    replace(other);
    made_anew("NO_BINARY_FOR_GPU");
  });
}

TEST_F(JitDevice, CachedImageWithoutTheKernelIsMadeAnew) {
  in_child("", [&] {
    CompileRequest other = request;
    other.program = "extern \"C\" __global__ void g(float* x) { *x = 2; }\n";
    other.kernels = {"g"};
    replace(other);
    made_anew("NOT_FOUND");
  });
}

TEST_F(JitDevice, ARefusedNewImageIsAnError) {
  in_child(R"({"function": "cuLibraryLoadData", "error": 209})", [&] {
    EXPECT_EQ(load(), nullptr);
    EXPECT_TRUE(has(reasons, Code::kJitImage)) << all_text(reasons);
    EXPECT_NE(all_text(reasons).find("NO_BINARY_FOR_GPU"), std::string::npos);
    EXPECT_EQ(cache.entries.size(), 1u);
    // The image is in the cache now: it is set aside and compiled again once, and then the load
    // fails.
    EXPECT_EQ(load(), nullptr);
    EXPECT_TRUE(has(reasons, Code::kJitImage)) << all_text(reasons);
    EXPECT_EQ(cache.aside.size(), 1u);
  });
}

TEST_F(JitDevice, ALostDeviceDoesNotSpoilTheCache) {
  in_child(R"({"function": "cuLibraryLoadData", "error": 700, "sticky": true})", [&] {
    works();
    EXPECT_EQ(load(), nullptr);
    EXPECT_TRUE(has(reasons, Code::kDriverFailed)) << all_text(reasons);
    EXPECT_TRUE(cache.aside.empty());
    EXPECT_EQ(cache.entries.size(), 1u);
  });
}

TEST_F(JitDevice, NoDeviceMemoryDoesNotSpoilTheCache) {
  in_child(R"({"function": "cuLibraryLoadData", "error": 2, "call": 1})", [&] {
    works();
    EXPECT_EQ(load(), nullptr);
    EXPECT_TRUE(has(reasons, Code::kDriverFailed)) << all_text(reasons);
    EXPECT_TRUE(cache.aside.empty());
    loads();
  });
}

// ---- a plugin's packed source

class JitPacked : public JitDevice {
 protected:
  ImageRow row(ImageKind kind, const char* name, const std::string& bytes, std::string names) {
    texts.push_back(std::make_unique<std::string>(bytes));
    texts.push_back(std::make_unique<std::string>(std::move(names)));
    const auto span = [](const std::string& text) {
      return std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size());
    };
    return {Backend::kCuda, kind, name, {}, span(*texts[texts.size() - 2]), span(*texts.back()), 0};
  }
  std::unique_ptr<CompiledKernels> load_packed() {
    reasons.clear();
    return jit_kernels("p 0.1", rows, driver, {OPDOCK_CUDA, 0}, gpu, context, &reasons);
  }
  bool make(CompiledKernels* kernels, const char* name) {
    reasons.clear();
    return kernels->make(name, context, &reasons);
  }
  std::vector<std::unique_ptr<std::string>> texts;
  std::vector<ImageRow> rows;
};

TEST_F(JitPacked, IsCompiledForExactlyThisGpu) {
  in_child("", [&] {
    rows = {row(ImageKind::kCubin, "sm_80", "not looked at", std::string("f<float>\0_Zf\0", 13)),
            row(ImageKind::kSource, "p.cuh", "#include \"opdock/x.cuh\"\n" + std::string(kKernels),
                std::string("f<float>\0\0g\0\0", 13)),
            row(ImageKind::kSource, "opdock/x.cuh", "// vocabulary\n", "")};
    const std::unique_ptr<CompiledKernels> kernels = load_packed();
    ASSERT_NE(kernels, nullptr) << all_text(reasons);
    EXPECT_TRUE(cache.entries.empty()) << "none was asked for";
    ASSERT_TRUE(make(kernels.get(), "f<float>")) << all_text(reasons);
    finds(kernels.get(), "f<float>");
    ASSERT_EQ(cache.entries.size(), 1u);
    EXPECT_EQ(cache.entries[0]->subject(), "p 0.1 f<float> for sm_90a");
  });
}

TEST_F(JitPacked, WithoutSource) {
  in_child("", [&] {
    rows = {row(ImageKind::kCubin, "sm_80", "x", std::string("f<float>\0_Zf\0", 13)),
            row(ImageKind::kSource, "opdock/x.cuh", "// vocabulary\n", "")};
    EXPECT_EQ(load_packed(), nullptr);
    EXPECT_TRUE(has(reasons, Code::kJitNoSource)) << all_text(reasons);
  });
}

TEST_F(JitPacked, WithoutKernelNamesThoseOfItsImagesAreTaken) {
  in_child("", [&] {
    rows = {row(ImageKind::kSource, "p.cuh", kKernels, "")};
    EXPECT_EQ(load_packed(), nullptr);
    EXPECT_TRUE(has(reasons, Code::kJitNoSource)) << all_text(reasons);
    rows.push_back(row(ImageKind::kCubin, "sm_80", "x", std::string("f<float>\0_Zf\0", 13)));
    EXPECT_NE(load_packed(), nullptr) << all_text(reasons);
  });
}

TEST_F(JitPacked, SourceThatDoesNotCompile) {
  in_child("", [&] {
    rows = {row(ImageKind::kSource, "p.cuh", "\n oops\n", std::string("f\0\0", 3))};
    std::unique_ptr<CompiledKernels> kernels = load_packed();
    ASSERT_NE(kernels, nullptr) << all_text(reasons);
    for (int i = 0; i < 2; ++i) {
      EXPECT_FALSE(make(kernels.get(), "f"));
      EXPECT_TRUE(has(reasons, Code::kJitSource)) << all_text(reasons);
      EXPECT_NE(all_text(reasons).find("p.cuh(2)"), std::string::npos) << all_text(reasons);
    }
    rows[0] = row(ImageKind::kSource, "p.cuh", kKernels, std::string("g\0\0", 3));
    kernels = load_packed();
    ASSERT_NE(kernels, nullptr) << all_text(reasons);
    EXPECT_TRUE(make(kernels.get(), "g")) << all_text(reasons);
  });
}

TEST_F(JitPacked, AKernelThatDoesNotCompileLeavesTheOthers) {
  in_child("", [&] {
    rows = {row(ImageKind::kSource, "p.cuh",
                "template <class T> __global__ void f(T* x) { x->no(); }\n"
                "extern \"C\" __global__ void g(float* x) { *x = 2; }\n",
                std::string("f<float>\0\0g\0\0", 13))};
    const std::unique_ptr<CompiledKernels> kernels = load_packed();
    ASSERT_NE(kernels, nullptr) << all_text(reasons);
    EXPECT_FALSE(make(kernels.get(), "f<float>"));
    EXPECT_TRUE(has(reasons, Code::kJitSource)) << all_text(reasons);
    ASSERT_TRUE(make(kernels.get(), "g")) << all_text(reasons);
    finds(kernels.get(), "g");
    opdock_kernel* kernel = nullptr;
    EXPECT_TRUE(kernels->find("f<float>", &kernel).ok());
    EXPECT_EQ(kernel, nullptr);
    EXPECT_TRUE(make(kernels.get(), "h")) << "left to find()";
    const Status refused = kernels->find("h", &kernel);
    EXPECT_EQ(refused.status, OPDOCK_NOT_FOUND);
    EXPECT_NE(refused.text.find("\"f<float>\""), std::string::npos) << refused.text;
  });
}

// Without a usable compiler, step 2 fails when the kernels are loaded, so that the next steps are
// tried, unless every kernel is cached.
TEST_F(JitPacked, WithoutCompilerOnlyWhatIsCachedAsAWhole) {
  in_child("", [&] {
    rows = {row(ImageKind::kSource, "p.cuh", kKernels, std::string("f<float>\0\0g\0\0", 13))};
    const std::vector<NvrtcFile> good = nvrtcs;
    const auto refused_for = [&](Code code) {
      EXPECT_EQ(load_packed(), nullptr);
      EXPECT_TRUE(has(reasons, code)) << all_text(reasons);
    };
    nvrtcs.clear();
    refused_for(Code::kJitNoCompiler);
    nvrtcs = good;
    context.denied = "OPDOCK_JIT=never";
    refused_for(Code::kJitPolicy);
    context.denied.clear();
    gpu.major = 3;  // older than every architecture that the compilers know; a newer GPU gets PTX
    refused_for(Code::kJitArch);
    gpu.major = 9;
    context.cuda_driver = Version{11, 0};
    refused_for(Code::kJitDriver);
    context.cuda_driver = Version{13, 0};

    std::unique_ptr<CompiledKernels> kernels = load_packed();
    ASSERT_NE(kernels, nullptr) << all_text(reasons);
    ASSERT_TRUE(make(kernels.get(), "g")) << all_text(reasons);
    nvrtcs.clear();
    refused_for(Code::kJitNoCompiler);
    nvrtcs = good;
    ASSERT_TRUE(make(kernels.get(), "f<float>")) << all_text(reasons);
    nvrtcs.clear();
    context.denied = "OPDOCK_JIT=never";
    kernels = load_packed();
    ASSERT_NE(kernels, nullptr) << all_text(reasons);
    ASSERT_TRUE(make(kernels.get(), "g")) << all_text(reasons);
    finds(kernels.get(), "g");
  });
}

}  // namespace
}  // namespace opdock_test
