// Tests compiling in separate processes: workers that die, hang, flood or answer nonsense, and
// hipRTC.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <set>
#include <thread>

#include "jit/plugin_source.h"
#include "jit/worker.h"
#include "support/sanitizer.h"
#include "support/tree_plugins.h"
#include "unit/jit/support.h"

namespace opdock_test {
namespace {

using Clock = std::chrono::steady_clock;

class WorkerFault : public testing::Test {
 protected:
  WorkerFault() {
    context.cache = &cache;
    context.nvrtcs = &nvrtcs;
    context.worker = OPDOCK_COMPILE;
    context.in_worker = true;
    static int number = 0;
    request.name = request.program_name = "user.cu";
    request.program = "// " + std::to_string(++number) + "\n";
    request.kernels = {"f"};
    request.arch = "sm_90a";
  }
  CompiledImagePtr ask() {
    reasons.clear();
    return compile_image(request, context, &reasons);
  }
  // Compiles with four workers at once. Returns how many requests succeeded; `reasons` says why
  // others did not.
  size_t make_all(const std::vector<CompileRequest>& requests) {
    reasons.clear();
    size_t made = 0;
    compile_all(requests, 4, context,
                [&](size_t, const CompiledImagePtr& image, const std::vector<Reason>& why) {
                  made += image != nullptr;
                  reasons.insert(reasons.end(), why.begin(), why.end());
                });
    return made;
  }
  void script(const std::string& text) {
    const fs::path path = folder.write("worker", "#!/bin/sh\n" + text + "\n");
    fs::permissions(path, fs::perms::owner_all);
    context.worker = path.string();
  }
  // Expects a quick refusal with this text and code, and success with a good worker and program.
  void refused(const std::string& words, Code code = Code::kJitWorker) {
    const Clock::time_point begin = Clock::now();
    EXPECT_EQ(ask(), nullptr);
    EXPECT_LT(Clock::now() - begin, std::chrono::seconds(30));
    EXPECT_TRUE(has(reasons, code)) << all_text(reasons);
    EXPECT_NE(all_text(reasons).find(words), std::string::npos) << words << "\n"
                                                                << all_text(reasons);
    EXPECT_TRUE(cache.entries.empty());
    context.worker = OPDOCK_COMPILE;
    request.program = "// sound " + request.program.substr(0, 8) + "\n";
    EXPECT_NE(ask(), nullptr) << all_text(reasons);
  }

  std::vector<NvrtcFile> nvrtcs = {{FAKE_NVRTC_12, Version{12, 9}, "aa12", ""}};
  MemoryCache cache;
  JitContext context;
  CompileRequest request;
  std::vector<Reason> reasons;
  TemporaryFolder folder;
};

TEST_F(WorkerFault, NotThere) {
  context.worker = (folder.path() / "worker").string();
  refused("No such file");
}
TEST_F(WorkerFault, NoProgram) {
  context.worker = folder.write("worker", "text").string();
  refused("worker: ");
}
TEST_F(WorkerFault, EndsAtOnce) {
  script("exit 3");
  refused("ended with status 3");
}
TEST_F(WorkerFault, EndsAtOnceWithWords) {
  script("echo 'a library is missing' >&2; exit 127");
  refused("a library is missing");
}
// The worker does not inherit signals that a thread of the host blocks.
TEST_F(WorkerFault, SignalsAreNotTheHosts) {
  sigset_t blocked, before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  script("exec grep SigBlk /proc/self/status >&2");
  pthread_sigmask(SIG_BLOCK, &blocked, &before);
  EXPECT_EQ(ask(), nullptr);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  EXPECT_NE(all_text(reasons).find("SigBlk:\t0000000000000000"), std::string::npos)
      << all_text(reasons);
}
TEST_F(WorkerFault, IsKilled) {
  script("kill -SEGV $$");
  refused("ended by SIGSEGV");
}
TEST_F(WorkerFault, TalksNonsense) {
  script("echo 'this is no message, but long enough to look at'; sleep 60");
  refused("nonsense");
}
TEST_F(WorkerFault, PromisesTooMuch) {
  script("printf 'OPJ1\\001\\000\\000\\000\\377\\377\\377\\377\\377\\377\\377\\377'; sleep 60");
  refused("nonsense");
}
TEST_F(WorkerFault, AnswersWithoutContent) {
  script("printf 'OPJ1\\000\\000\\000\\000\\000\\000\\000\\000\\000\\000\\000\\000'; sleep 60");
  refused("nonsense");
}
TEST_F(WorkerFault, FloodsItsAnswer) {
  script("head -c 100000000 /dev/zero; sleep 60");
  refused("nonsense");
}
TEST_F(WorkerFault, Hangs) {
  context.deadline = std::chrono::milliseconds(300);
  script("sleep 60");
  refused("within 0.3");
}
TEST_F(WorkerFault, ClosesItsOutputAndLives) {
  script("exec >&- <&-; sleep 60");
  refused("closed its output");
}

TEST_F(WorkerFault, CompilerCrashes) {
  request.program += "// CRASH\n";
  refused("ended by SIGABRT; its last words:\nfake compiler: cannot go on");
}
TEST_F(WorkerFault, CompilerHangs) {
  context.deadline = std::chrono::milliseconds(500);
  request.program += "// HANG\n";
  refused("within 0.5");
}
TEST_F(WorkerFault, CompilerPrintsAHundredMegabytes) {
  request.program += "// FLOOD\n";
  ASSERT_NE(ask(), nullptr) << all_text(reasons);
}
TEST_F(WorkerFault, CompilerFailsItself) {
  request.program += "// NOMEMORY\n";
  refused("FAKE_ERROR", Code::kJitFailed);
}
TEST_F(WorkerFault, SourceIsFaulty) {
  request.program += "#error\n";
  refused("user.cu(3): error", Code::kJitSource);
}

TEST_F(WorkerFault, IsStopped) {
  request.program += "// HANG\n";
  Stop stop;
  context.progress = &stop;
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    stop.stop = true;
  });
  EXPECT_EQ(ask(), nullptr);
  EXPECT_TRUE(has(reasons, Code::kCancelled)) << all_text(reasons);
  later.join();
}

TEST_F(WorkerFault, ManyTexts) {
  for (int i = 0; i < 3000; ++i) {
    request.headers.push_back({"h" + std::to_string(i), std::string(2000, ' ')});
  }
  EXPECT_NE(ask(), nullptr) << all_text(reasons);
}

TEST_F(WorkerFault, DoesNotOutliveItsHost) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t host = fork();
  if (host == 0) {
    // The worker hangs in a compilation and keeps its end of the pipe open as long as it lives.
    request.program += "// HANG\n";
    ask();
    _exit(0);
  }
  close(ends[1]);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  kill(host, SIGKILL);
  waitpid(host, nullptr, 0);
  alarm(10);  // ends the test if the worker stays, because the read would then wait
  char byte;
  EXPECT_EQ(read(ends[0], &byte, 1), 0);
  alarm(0);
  close(ends[0]);
}

TEST_F(WorkerFault, ManyAtOnceEachInAProcess) {
  std::vector<CompileRequest> requests;
  for (int i = 0; i < 12; ++i) {
    requests.push_back(request);
    requests.back().program += i == 5 ? "// CRASH\n" : "// SLEEP=100 " + std::to_string(i) + "\n";
  }
  std::set<size_t> made;
  std::vector<Reason> failed;
  context.in_worker = false;
  compile_all(requests, 4, context,
              [&](size_t i, const CompiledImagePtr& image, const std::vector<Reason>& why) {
                if (image != nullptr) made.insert(i);
                failed.insert(failed.end(), why.begin(), why.end());
              });
  EXPECT_EQ(made.size(), 11u);
  EXPECT_EQ(made.count(5), 0u);
  EXPECT_TRUE(has(failed, Code::kJitWorker)) << all_text(failed);
  EXPECT_EQ(cache.entries.size(), 11u);
  EXPECT_EQ(compiles(FAKE_NVRTC_12), 0) << "nothing was compiled in this process";
}

// Simulates a limit on processes: fewer threads can be started than wanted.
TEST_F(WorkerFault, ManyAtOnceWithFewerThreadsThanWanted) {
#if defined(OPDOCK_TEST_ASAN) || defined(OPDOCK_TEST_TSAN)
  GTEST_SKIP() << "a sanitizer needs the room that is taken away here";
#endif
  constexpr size_t kStack = 512 << 20;
  pthread_attr_t before, large;
  pthread_getattr_default_np(&before);
  pthread_attr_init(&large);
  pthread_attr_setstacksize(&large, kStack);
  rlimit limit{};
  getrlimit(RLIMIT_AS, &limit);
  for (const size_t threads : {0, 1, 2}) {
    std::vector<CompileRequest> requests(4, request);
    for (CompileRequest& one : requests)
      one.program += "// SLEEP=50 " + std::to_string(threads) + std::to_string(&one - &requests[0]);
    uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const uint64_t room = threads * kStack + kStack / 2;
    const rlimit tight{pages * static_cast<uint64_t>(getpagesize()) + room, limit.rlim_max};
    pthread_setattr_default_np(&large);
    setrlimit(RLIMIT_AS, &tight);
    const size_t made = make_all(requests);
    setrlimit(RLIMIT_AS, &limit);
    pthread_setattr_default_np(&before);
    EXPECT_EQ(made, requests.size()) << threads << "\n" << all_text(reasons);
  }
}

// One thread compiles and the others get its result; none gets the error that it would wait for
// itself.
TEST_F(WorkerFault, TheSameManyTimesIsMadeOnce) {
  request.program += "// SLEEP=100\n";
  const std::vector<CompileRequest> requests(8, request);
  EXPECT_EQ(make_all(requests), requests.size()) << all_text(reasons);
  EXPECT_TRUE(reasons.empty()) << all_text(reasons);
  EXPECT_EQ(cache.entries.size(), 1u);
}

// Preparing compiles all kernels of a plugin, none of them in this process. If one fails, the
// others are ready and the failed one is tried again.
TEST_F(WorkerFault, PreparingMakesAllKernels) {
  const std::vector<NvrtcFile> good = nvrtcs;
  LoadsAll driver;
  request.kernels = {"f<1>", "f<2>", "f<3>", "f<2>"};
  context.in_worker = false;  // preparing always uses workers, whatever the caller set
  CompiledKernels kernels(request, &driver, {OPDOCK_CUDA, 0});
  nvrtcs.clear();
  EXPECT_FALSE(kernels.make_all(context, &reasons));
  EXPECT_TRUE(has(reasons, Code::kJitNoCompiler)) << all_text(reasons);
  nvrtcs = good;
  reasons.clear();
  const int before = compiles(FAKE_NVRTC_12);
  ASSERT_TRUE(kernels.make_all(context, &reasons)) << all_text(reasons);
  EXPECT_EQ(compiles(FAKE_NVRTC_12), before);
  EXPECT_EQ(cache.entries.size(), 3u);
  EXPECT_EQ(driver.loads, 3);
  for (const char* name : {"f<1>", "f<2>", "f<3>"}) {
    opdock_kernel* kernel = nullptr;
    const Status found = kernels.find(name, &kernel, false);
    ASSERT_TRUE(found.ok()) << found.text;
    EXPECT_EQ(kernel->image_name, "lowered_" + std::string(name));
  }
  ASSERT_TRUE(kernels.make_all(context, &reasons)) << all_text(reasons);
  EXPECT_EQ(driver.loads, 3);
}

TEST_F(WorkerFault, PreparingTellsOfADeadWorkerOnce) {
  LoadsAll driver;
  request.program += "// CRASH\n";
  request.kernels = {"f<1>", "f<2>"};
  CompiledKernels kernels(request, &driver, {OPDOCK_CUDA, 0});
  EXPECT_FALSE(kernels.make_all(context, &reasons));
  EXPECT_EQ(reasons.size(), 1u) << all_text(reasons);
  EXPECT_TRUE(has(reasons, Code::kJitWorker)) << all_text(reasons);
  EXPECT_EQ(driver.loads, 0);
}

TEST_F(WorkerFault, PreparingIsStopped) {
  LoadsAll driver;
  request.program += "// HANG\n";
  request.kernels = {"f<1>", "f<2>", "f<3>"};
  CompiledKernels kernels(request, &driver, {OPDOCK_CUDA, 0});
  // Only the calling thread may see the cancellation, as with Python's main thread.
  struct Mine : Progress {
    const std::thread::id caller = std::this_thread::get_id();
    std::atomic<bool> stop{false};
    void step(std::string_view, double) override {}
    bool cancelled() override { return stop && std::this_thread::get_id() == caller; }
  } progress;
  context.progress = &progress;
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    progress.stop = true;
  });
  EXPECT_FALSE(kernels.make_all(context, &reasons));
  EXPECT_TRUE(has(reasons, Code::kCancelled)) << all_text(reasons);
  later.join();
}

// ---- hipRTC

class Hiprtc : public WorkerFault {
 protected:
  void SetUp() override {
    std::vector<std::string> searched;
    if (find_hiprtc_files(current_environment(), &searched).empty()) {
      GTEST_SKIP() << "no hipRTC is installed";
    }
    request.backend = Backend::kRocm;
    request.arch = "gfx90a";
    request.program +=
        "template <class T> __global__ void f(T* x) { x[threadIdx.x] = T(warpSize); }\n";
    request.kernels = {"f<float>"};
  }
};

TEST_F(Hiprtc, MakesCodeObjects) {
  for (const char* arch : {"gfx90a", "gfx908", "gfx1030", "gfx90a:xnack-"}) {
    request.arch = arch;
    const CompiledImagePtr image = ask();
    ASSERT_NE(image, nullptr) << all_text(reasons);
    EXPECT_EQ(image->kind, ImageKind::kCodeObject);
    EXPECT_EQ(text(image->bytes).substr(1, 3), "ELF");
    EXPECT_TRUE(image->maker.starts_with("hipRTC ")) << image->maker;
    EXPECT_NE(text(image->names).find("_Z1fIfEvPT_"), std::string::npos);
  }
}

TEST_F(Hiprtc, AnUnknownArchitectureCostsAReasonNotTheProcess) {
  request.arch = "gfx9999";
  EXPECT_EQ(ask(), nullptr);
  EXPECT_TRUE(has(reasons, Code::kJitArch)) << all_text(reasons);
  EXPECT_NE(all_text(reasons).find("gfx90a "), std::string::npos) << all_text(reasons);
  request.arch = "gfx1030:xnack-";  // a processor without XNACK
  EXPECT_EQ(ask(), nullptr);
  EXPECT_TRUE(has(reasons, Code::kJitArch)) << all_text(reasons);
  request.arch = "gfx90a";
  EXPECT_NE(ask(), nullptr) << all_text(reasons);
}

TEST_F(Hiprtc, ErrorsNameTheUsersFileAndLine) {
  const std::string good = request.program;
  request.program += "__global__ void g() {\n  no_such_function();\n}\n";
  EXPECT_EQ(ask(), nullptr);
  EXPECT_TRUE(has(reasons, Code::kJitSource)) << all_text(reasons);
  EXPECT_NE(all_text(reasons).find("user.cu:4:"), std::string::npos) << all_text(reasons);
  request.program = good;
  request.kernels = {"nothing"};
  EXPECT_EQ(ask(), nullptr);
  EXPECT_TRUE(has(reasons, Code::kJitKernel)) << all_text(reasons);
  request.kernels = {"f<float>"};
  request.options = {"--no-such-option"};
  EXPECT_EQ(ask(), nullptr);
  EXPECT_TRUE(has(reasons, Code::kJitOption)) << all_text(reasons);
  request.options = {"-DX=1"};
  EXPECT_NE(ask(), nullptr) << all_text(reasons);
}

TEST_F(Hiprtc, IsNotThere) {
  const std::vector<HiprtcFile> none;
  context.hiprtcs = &none;
  EXPECT_EQ(ask(), nullptr);
  EXPECT_TRUE(has(reasons, Code::kJitNoCompiler)) << all_text(reasons);
  const std::vector<HiprtcFile> wrong = {{OTHER_LIBRARY, Version{9, 0}, "x"}};
  context.hiprtcs = &wrong;
  EXPECT_EQ(ask(), nullptr);
  EXPECT_NE(all_text(reasons).find("has no function hiprtc"), std::string::npos)
      << all_text(reasons);
}

// Compiles the device sources of the shipped plugins for warps of 64 (CDNA) and of 32 (RDNA). Code
// objects that the build has already packed are only looked at.
TEST_F(Hiprtc, ShippedPluginsCompileForAmd) {
  std::string problem;
  for (const TreePlugin& plugin : plugins_with_kernels("rocm")) {
    const std::string& name = plugin.name;
    const std::string path = PLUGINS_FOLDER "/" + name + ".so";
    ASSERT_TRUE(fs::exists(path)) << path;
    std::ifstream stream(path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(stream), {}};
    const size_t at = bytes.find(std::string(kImageMagic, sizeof kImageMagic));
    ASSERT_NE(at, bytes.npos) << name;
    std::vector<ImageRow> rows;
    const auto* table = reinterpret_cast<const uint8_t*>(bytes.data()) + at;
    ASSERT_TRUE(read_mapped_table({table, bytes.size() - at}, &rows, &problem)) << problem;
    std::vector<const char*> archs = {"gfx90a"};  // the architecture that tests pack
    if (std::getenv("OPDOCK_TEST_NIGHTLY")) archs.insert(archs.end(), {"gfx908", "gfx1030"});
    for (const char* arch : archs) {
      CompileRequest packed;
      reasons.clear();
      ASSERT_TRUE(packed_request(name, rows, Backend::kRocm, arch, &packed, &reasons))
          << all_text(reasons);
      const auto here = std::find_if(rows.begin(), rows.end(), [&](const ImageRow& row) {
        return row.backend == Backend::kRocm && row.kind == ImageKind::kCodeObject &&
               row.arch == arch;
      });
      CompiledImagePtr image;
      if (here == rows.end()) {
        image = compile_image(packed, context, &reasons);
        ASSERT_NE(image, nullptr) << name << " " << arch << "\n" << all_text(reasons);
      }
      EXPECT_EQ(text(image ? image->bytes : here->bytes).substr(1, 3), "ELF");
      std::vector<std::pair<std::string, std::string>> names;
      ASSERT_TRUE(read_names(image ? image->names : here->names, &names));
      EXPECT_EQ(names.size(), packed.kernels.size());
    }
  }
}

}  // namespace
}  // namespace opdock_test
