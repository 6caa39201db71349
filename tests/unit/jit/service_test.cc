// Tests the compile service with fake compilers: what is compiled, when, by whom, and what is kept.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "jit/plugin_source.h"
#include "support.h"

namespace opdock_test {
namespace {

NvrtcFile file(const char* path, Version version, std::string id) {
  return {path, std::move(version), std::move(id), ""};
}
const NvrtcFile kOld = file(FAKE_NVRTC_12, {12, 9}, "aa12");
const NvrtcFile kNew = file(FAKE_NVRTC_13, {13, 0}, "bb13");

class Service : public testing::Test {
 protected:
  Service() {
    context.cache = &cache;
    context.nvrtcs = &nvrtcs;
    // Tests in the same process must not find each other's images in memory.
    static int number = 0;
    request.name = "test";
    request.program = "// " + std::to_string(++number) + "\n";
    request.kernels = {"f<float>"};
    request.arch = "sm_90a";
  }
  CompiledImagePtr ask() {
    reasons.clear();
    return compile_image(request, context, &reasons);
  }
  int made() const { return compiles(FAKE_NVRTC_12) + compiles(FAKE_NVRTC_13) - before; }
  // Returns the context with this progress.
  JitContext reporting_to(Progress* progress) const {
    JitContext own = context;
    own.progress = progress;
    return own;
  }
  // From here on no compilation of the request ends before let_go().
  void hold() { request.program += "// UNTIL=" + (folder.path() / "go").string() + "\n"; }
  void let_go() const { folder.write("go", ""); }

  std::vector<NvrtcFile> nvrtcs = {kNew, kOld};
  MemoryCache cache;
  JitContext context;
  CompileRequest request;
  std::vector<Reason> reasons;
  TemporaryFolder folder;
  int before = compiles(FAKE_NVRTC_12) + compiles(FAKE_NVRTC_13);
};

TEST_F(Service, CompilesOnceAndFindsItInTheCacheLater) {
  CompiledImagePtr image = ask();
  ASSERT_NE(image, nullptr) << all_text(reasons);
  EXPECT_FALSE(image->from_cache);
  EXPECT_EQ(image->maker, "NVRTC 13.0");
  EXPECT_EQ(image->toolkit, (Version{13, 0}));
  EXPECT_EQ(image->kind, ImageKind::kCubin);
  EXPECT_NE(text(image->bytes).find("option --gpu-architecture=sm_90a\noption --std=c++17"),
            std::string::npos);
  const std::string bytes = text(image->bytes), names = text(image->names);
  EXPECT_EQ(names, std::string("f<float>\0lowered_f<float>\0", 26));
  EXPECT_EQ(ask(), image) << "while somebody holds it, it is in memory";
  image.reset();
  image = ask();
  ASSERT_NE(image, nullptr);
  EXPECT_TRUE(image->from_cache);
  EXPECT_EQ(text(image->bytes), bytes);
  EXPECT_EQ(text(image->names), names);
  EXPECT_EQ(image->toolkit, (Version{13, 0}));
  EXPECT_EQ(made(), 1);
  EXPECT_TRUE(reasons.empty()) << all_text(reasons);
}

TEST_F(Service, EverythingThatDecidesTheResultIsInTheKey) {
  request.headers = {{"a.h", "A"}, {"b.h", "B"}};
  request.options = {"-DX=1", "-DY=11"};
  request.kernels = {"f", "g"};
  const auto key = [&](const CompileRequest& one) {
    return key_of(cache_request(one, context, {}));
  };
  const std::string base = key(request);
  std::vector<std::string> keys = {base};
  const auto differs = [&](const char* what, const std::function<void(CompileRequest*)>& change) {
    CompileRequest other = request;
    change(&other);
    const std::string found = key(other);
    EXPECT_EQ(std::count(keys.begin(), keys.end(), found), 0) << what;
    keys.push_back(found);
  };
  differs("program", [](CompileRequest* r) { r->program += " "; });
  differs("file name", [](CompileRequest* r) { r->program_name = "x.cu"; });
  differs("header's text", [](CompileRequest* r) { r->headers[1].text = "b"; });
  differs("header's name", [](CompileRequest* r) { r->headers[1].name = "c.h"; });
  differs("texts swapped",
          [](CompileRequest* r) { std::swap(r->headers[0].text, r->headers[1].text); });
  differs("another header", [](CompileRequest* r) { r->headers.push_back({"c.h", ""}); });
  const auto built_in = [](const char* name, const char* digest) {
    return SourceText{name, Text::built_in(""), digest};
  };
  differs("Opdock's header",
          [&](CompileRequest* r) { r->headers.push_back(built_in("c.h", "1")); });
  differs("its text", [&](CompileRequest* r) { r->headers.push_back(built_in("c.h", "2")); });
  differs("its name", [&](CompileRequest* r) { r->headers.push_back(built_in("d.h", "1")); });
  differs("option", [](CompileRequest* r) { r->options[1] = "-DY=12"; });
  differs("order of options", [](CompileRequest* r) { std::swap(r->options[0], r->options[1]); });
  // (1, 11) and (11, 1): adjacent parts must not run together.
  differs("border of options", [](CompileRequest* r) { r->options = {"-DX=11", "-DY=1"}; });
  differs("options joined", [](CompileRequest* r) { r->options = {"-DX=1-DY=11"}; });
  differs("kernel", [](CompileRequest* r) { r->kernels[1] = "h"; });
  differs("fewer kernels", [](CompileRequest* r) { r->kernels = {"f"}; });
  differs("kernels joined", [](CompileRequest* r) { r->kernels = {"fg"}; });
  differs("arch", [](CompileRequest* r) { r->arch = "sm_100a"; });
  differs("arch's suffix", [](CompileRequest* r) { r->arch = "sm_90"; });
  differs("output", [](CompileRequest* r) { r->arch = "compute_90"; });
  differs("sources", [](CompileRequest* r) { r->sources = {"a.h"}; });
  differs("sources' order", [](CompileRequest* r) { r->sources = {"b.h", "a.h"}; });

  const auto same = [&](const char* what, const std::function<void(CompileRequest*)>& change) {
    CompileRequest other = request;
    change(&other);
    EXPECT_EQ(key(other), base) << what;
  };
  same("what it is called", [](CompileRequest* r) { r->name = "another"; });
  same("order of headers", [](CompileRequest* r) { std::swap(r->headers[0], r->headers[1]); });
  same("order of kernels", [](CompileRequest* r) { std::swap(r->kernels[0], r->kernels[1]); });
}

TEST_F(Service, TheDriverIsInTheKeyOfPtxOnly) {
  const auto key = [&](const char* arch, Version driver) {
    request.arch = arch;
    context.cuda_driver = std::move(driver);
    return key_of(cache_request(request, context, {}));
  };
  EXPECT_EQ(key("sm_90a", {12, 4}), key("sm_90a", {13, 0}));
  EXPECT_NE(key("compute_90", {12, 4}), key("compute_90", {13, 0}));
}

TEST_F(Service, ImagesInMemoryAreByArchitecture) {
  CompiledImagePtr first = ask();
  request.arch = "sm_100a";
  CompiledImagePtr second = ask();
  ASSERT_TRUE(first != nullptr && second != nullptr);
  EXPECT_NE(text(first->bytes), text(second->bytes));
  EXPECT_EQ(made(), 2);
}

TEST_F(Service, TakesTheNewestCompilerThatTheDriverRuns) {
  struct Row {
    const char* arch;
    std::optional<Version> driver;
    const char* maker;  // "": refused with `code`
    Code code;
  };
  const Row rows[] = {
      {"sm_90", Version{13, 1}, "NVRTC 13.0", Code::kJitDriver},
      {"sm_90", Version{13, 0}, "NVRTC 13.0", Code::kJitDriver},
      {"sm_90", Version{12, 4}, "NVRTC 12.9", Code::kJitDriver},  // minor versions do not matter
      {"sm_90", std::nullopt, "NVRTC 13.0", Code::kJitDriver},
      {"sm_90", Version{11, 8}, "", Code::kJitDriver},
      {"compute_90", Version{13, 0}, "NVRTC 13.0", Code::kJitDriver},
      {"compute_90", Version{12, 9}, "NVRTC 12.9", Code::kJitDriver},
      {"compute_90", Version{12, 8}, "", Code::kJitDriver},     // for PTX they do
      {"sm_60", Version{13, 0}, "NVRTC 12.9", Code::kJitArch},  // NVRTC 13 no longer knows it
      {"sm_110", Version{12, 9}, "", Code::kJitArch},
      {"sm_33", Version{13, 0}, "", Code::kJitArch},
  };
  for (const Row& row : rows) {
    request.arch = row.arch;
    context.cuda_driver = row.driver;
    const CompiledImagePtr image = ask();
    const std::string what = std::string(row.arch) + " " +
                             (row.driver ? row.driver->text() : "no driver") + "\n" +
                             all_text(reasons);
    EXPECT_EQ(image == nullptr ? "" : image->maker, row.maker) << what;
    if (*row.maker == '\0') {
      EXPECT_TRUE(has(reasons, row.code)) << what;
    }
  }
}

TEST_F(Service, AGpuNewerThanEveryCompilerGetsPtxOfTheNewestThatTheDriverTakes) {
  struct Row {
    const char* arch;
    std::optional<Version> driver;
    const char* ptx;  // "": none
  };
  const Row rows[] = {
      {"sm_130a", Version{13, 0}, "compute_120"},
      {"sm_130", Version{12, 9}, "compute_120"},  // by NVRTC 12.9
      {"sm_130", Version{12, 8}, ""},             // an older driver cannot read its PTX
      {"sm_130", std::nullopt, "compute_120"},
      {"sm_103", Version{13, 0}, "compute_100"},
      // known only to a compiler that the driver cannot run
      {"sm_110", Version{12, 9}, "compute_100"},
      {"sm_110", Version{13, 0}, ""},  // known to a compiler
      {"sm_90a", Version{13, 0}, ""},
      {"sm_33", Version{13, 0}, ""},  // older than every architecture that they know
      {"compute_130", Version{13, 0}, ""},
  };
  for (const Row& row : rows) {
    request.arch = row.arch;
    context.cuda_driver = row.driver;
    Reason why{};
    const auto ptx = ptx_for_newer_gpu(request, context, &why);
    EXPECT_EQ(ptx ? ptx->arch : "", row.ptx) << row.arch;
    if (!ptx) continue;
    EXPECT_EQ(why.code, Code::kArchPtx);
    EXPECT_NE(why.found.find(row.arch), std::string::npos) << why.found;
    EXPECT_NE(why.advice.find(row.ptx), std::string::npos) << why.advice;
    EXPECT_EQ(ptx->program, request.program);
    reasons.clear();
    const CompiledImagePtr image = compile_image(*ptx, context, &reasons);
    ASSERT_NE(image, nullptr) << all_text(reasons);
    EXPECT_EQ(image->kind, ImageKind::kPtx);
  }
  request.backend = Backend::kRocm;
  request.arch = "gfx999";
  Reason why{};
  EXPECT_FALSE(ptx_for_newer_gpu(request, context, &why));
  request.backend = Backend::kCuda;
  request.arch = "sm_130";
  nvrtcs.clear();
  EXPECT_FALSE(ptx_for_newer_gpu(request, context, &why));
}

// PTX stands in for 11.0 until a compiler that knows it is installed; then native code is made.
TEST_F(Service, ACompilerThatComesAndKnowsTheGpuEndsThePtxAndIsReported) {
  const std::string source = "template <class T> __global__ void f() {}\n";
  const std::string names("f<float>\0\0", 10);
  const auto span = [](const std::string& text) {
    return std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  };
  const std::vector<ImageRow> rows = {
      {Backend::kCuda, ImageKind::kSource, "p.cuh", {}, span(source), span(names), 0}};
  Gpu gpu{};
  gpu.backend = Backend::kCuda;
  gpu.major = 11;
  const auto told = [&] {
    reasons.clear();
    EXPECT_NE(jit_kernels("p 0.1", rows, nullptr, {OPDOCK_CUDA, 0}, gpu, context, &reasons),
              nullptr);
    std::string codes;
    for (const Reason& reason : reasons) codes += std::string(info(reason.code).name) + ";";
    return codes;
  };
  nvrtcs = {kOld};
  EXPECT_EQ(told(), "arch-ptx;");
  EXPECT_EQ(told(), "arch-ptx;");
  nvrtcs = {kNew, kOld};
  ASSERT_EQ(told(), "arch-known;");
  EXPECT_NE(reasons[0].found.find("sm_110a"), std::string::npos) << reasons[0].found;
  EXPECT_EQ(told(), "") << "once";
  // Of images, too, the older compiler's is no longer used.
  request.arch = "compute_100";
  nvrtcs = {kOld};
  ASSERT_NE(ask(), nullptr) << all_text(reasons);
  request.arch = "sm_110a";
  nvrtcs = {kNew, kOld};
  const CompiledImagePtr image = ask();
  ASSERT_NE(image, nullptr) << all_text(reasons);
  EXPECT_EQ(image->kind, ImageKind::kCubin);
  EXPECT_EQ(image->maker, "NVRTC 13.0");
}

TEST_F(Service, AnotherCompilerMakesItAnew) {
  nvrtcs = {kOld};
  ASSERT_NE(ask(), nullptr);
  NvrtcFile other = kOld;
  other.id = "cc12";  // reports the same version
  nvrtcs = {other};
  ASSERT_NE(ask(), nullptr);
  EXPECT_EQ(made(), 2);
  EXPECT_EQ(cache.entries.size(), 2u);
  nvrtcs = {kNew, kOld};
  EXPECT_EQ(ask()->maker, "NVRTC 13.0");
  EXPECT_EQ(made(), 3);
  // Each compiler finds its own image again.
  nvrtcs = {kOld};
  EXPECT_TRUE(ask()->from_cache);
  EXPECT_EQ(ask()->maker, "NVRTC 12.9");
  EXPECT_EQ(made(), 3);
}

TEST_F(Service, WithoutACompilerTheCachesNewestThatTheDriverRunsWillDo) {
  nvrtcs = {kOld};
  ASSERT_NE(ask(), nullptr);
  nvrtcs = {kNew};
  ASSERT_NE(ask(), nullptr);
  nvrtcs = {};
  CompiledImagePtr image = ask();
  ASSERT_NE(image, nullptr) << all_text(reasons);
  EXPECT_EQ(image->maker, "NVRTC 13.0");
  image.reset();
  context.cuda_driver = Version{12, 2};
  image = ask();
  ASSERT_NE(image, nullptr) << all_text(reasons);
  EXPECT_EQ(image->maker, "NVRTC 12.9");
  EXPECT_TRUE(cache.aside.empty()) << "the newer one is of use elsewhere";
  image.reset();
  context.cuda_driver = Version{11, 4};
  EXPECT_EQ(ask(), nullptr);
  EXPECT_TRUE(has(reasons, Code::kJitNoCompiler)) << all_text(reasons);
}

TEST_F(Service, ThreadsThatAskForTheSameGetOneCompilation) {
  request.program += "// SLEEP=300\n";
  std::vector<CompiledImagePtr> images(8);
  std::vector<std::thread> threads;
  for (CompiledImagePtr& image : images) {
    threads.emplace_back([&] {
      std::vector<Reason> why;
      image = compile_image(request, context, &why);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const CompiledImagePtr& image : images) {
    ASSERT_NE(image, nullptr);
    EXPECT_EQ(image, images[0]);
  }
  EXPECT_EQ(made(), 1);
}

TEST_F(Service, OtherRequestsAreNotHeldUp) {
  const CompileRequest quick = request;
  hold();
  const CompileRequest slow = request;
  Stop stop;
  std::thread thread([&] {
    std::vector<Reason> why;
    EXPECT_EQ(compile_image(slow, reporting_to(&stop), &why), nullptr);
    EXPECT_TRUE(has(why, Code::kCancelled)) << all_text(why);
  });
  stop.wait_for_step();
  request = quick;
  EXPECT_NE(ask(), nullptr);
  stop.stop = true;
  thread.join();
  EXPECT_EQ(stop.steps, std::vector<std::string>{"compiling test for sm_90a"});
  // A cancelled request can be made again.
  let_go();
  request = slow;
  EXPECT_NE(ask(), nullptr);
}

TEST_F(Service, AWaiterCanGiveUpAndAnotherTakesOverFromAStoppedMaker) {
  hold();
  Stop first, second, third;
  std::thread maker([&] {
    std::vector<Reason> why;
    EXPECT_EQ(compile_image(request, reporting_to(&first), &why), nullptr);
  });
  first.wait_for_step();
  second.stop = true;
  std::vector<Reason> why;
  EXPECT_EQ(compile_image(request, reporting_to(&second), &why), nullptr);
  EXPECT_TRUE(has(why, Code::kCancelled));
  std::thread heir([&] {
    std::vector<Reason> own_why;
    EXPECT_NE(compile_image(request, reporting_to(&third), &own_why), nullptr) << all_text(own_why);
  });
  third.wait_for_question();
  first.stop = true;
  maker.join();
  let_go();
  heir.join();
  EXPECT_EQ(made(), 2);
}

TEST_F(Service, AStopThatIsSaidOnceIsTheMakersAlone) {
  request.program += "// SLEEP=1000\n";
  struct Once : Stop {
    bool cancelled() override { return stop.exchange(false); }
  } once;
  JitContext own = context;
  own.progress = &once;
  std::thread maker([&] {
    std::vector<Reason> why;
    EXPECT_EQ(compile_image(request, own, &why), nullptr);
    EXPECT_EQ(why.size(), 1u) << all_text(why);
    EXPECT_TRUE(has(why, Code::kCancelled)) << all_text(why);
  });
  while (true) {
    const std::lock_guard lock(once.mutex);
    if (!once.steps.empty()) break;
  }
  std::thread heir([&] {
    std::vector<Reason> why;
    EXPECT_NE(compile_image(request, context, &why), nullptr) << all_text(why);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  once.stop = true;
  maker.join();
  heir.join();
}

TEST_F(Service, WaitersGetTheMakersFailure) {
  hold();
  request.program += "#error\n";
  std::vector<std::thread> threads;
  std::atomic<int> failed{0};
  Stop stops[4];
  for (Stop& stop : stops) {
    threads.emplace_back([&] {
      std::vector<Reason> why;
      if (compile_image(request, reporting_to(&stop), &why) == nullptr &&
          has(why, Code::kJitSource))
        ++failed;
    });
    if (&stop == stops)
      stop.wait_for_step();
    else
      stop.wait_for_question();
  }
  let_go();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 4);
  EXPECT_EQ(made(), 1);
  EXPECT_EQ(ask(), nullptr);
  EXPECT_EQ(made(), 2) << "asked again, it is tried again";
  EXPECT_TRUE(cache.entries.empty());
}

TEST_F(Service, AForkedChildDoesNotWaitForItsParentsThread) {
  hold();
  Stop stop;
  std::thread maker([&] {
    std::vector<Reason> why;
    compile_image(request, reporting_to(&stop), &why);
  });
  stop.wait_for_step();
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    std::vector<Reason> why;
    _exit(compile_image(request, context, &why) != nullptr ? 0 : 1);
  }
  stop.stop = true;
  maker.join();
  let_go();
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

// Otherwise all waiting threads would compile at once.
TEST_F(Service, AWaiterThatANewEntryDoesNotHelpWaitsOn) {
  cache.before_turn = [&] {
    EXPECT_EQ(made(), 0);
    return cache.locks < 3;
  };
  EXPECT_NE(ask(), nullptr) << all_text(reasons);
  EXPECT_EQ(cache.locks, 3);
  EXPECT_EQ(made(), 1);
}

TEST_F(Service, AnImageThatAnotherMadeAnewIsTaken) {
  ASSERT_NE(ask(), nullptr) << all_text(reasons);
  const CompiledImagePtr refused = ask();
  ASSERT_TRUE(refused != nullptr && refused->from_cache);
  const std::shared_ptr<MemoryEntry> others = cache.entries.front();
  cache.before_turn = [&] {
    cache.entries.push_back(others);
    return true;
  };
  const CompiledImagePtr image =
      compile_again(request, context, refused, "a driver that refuses it", &reasons);
  ASSERT_NE(image, nullptr) << all_text(reasons);
  EXPECT_TRUE(image->from_cache);
  EXPECT_EQ(cache.aside.size(), 1u);
  EXPECT_EQ(made(), 1);
}

TEST_F(Service, WithoutALockNothingIsPublished) {
  cache.no_lock = Code::kCacheWrite;
  EXPECT_NE(ask(), nullptr);
  EXPECT_TRUE(cache.entries.empty());
}

TEST_F(Service, WhoIsStoppedWhileWaitingForTheLockCompilesNothing) {
  Stop stop;  // reports no stop, because the cache has already received it
  context.progress = &stop;
  for (const Code code : {Code::kCancelled, Code::kWithinItself}) {
    cache.no_lock = code;
    EXPECT_EQ(ask(), nullptr);
    EXPECT_EQ(reasons.size(), 1u) << all_text(reasons);
    EXPECT_TRUE(has(reasons, code)) << all_text(reasons);
  }
  EXPECT_EQ(made(), 0);
  cache.no_lock.reset();
  EXPECT_NE(ask(), nullptr) << all_text(reasons);
}

TEST_F(Service, WithoutACacheItCompilesEachTime) {
  context.cache = nullptr;
  EXPECT_NE(ask(), nullptr);
  EXPECT_NE(ask(), nullptr);
  EXPECT_EQ(made(), 2);
}

TEST_F(Service, HeadersInFoldersCountByContent) {
  TemporaryFolder elsewhere;
  const auto write = [](const TemporaryFolder& where, const std::string& inner) {
    where.write("include/a.h", "#include \"sub/b.h\"\n");
    where.write("include/sub/b.h", "#  include <c.h>\n");
    where.write("include/c.h", inner);
  };
  write(folder, "// 1");
  write(elsewhere, "// 1");
  request.program += "#include \"a.h\"\n#include <nowhere.h>\n";
  request.options = {"-I" + (folder.path() / "include").string()};
  ASSERT_NE(ask(), nullptr) << all_text(reasons);
  write(folder, "// 1");  // new times, the same contents
  EXPECT_TRUE(ask()->from_cache);
  request.options = {"-I" + (elsewhere.path() / "include").string()};
  EXPECT_TRUE(ask()->from_cache) << "where the folder is does not matter";
  EXPECT_EQ(made(), 1);
  write(folder, "// 2");
  request.options = {"-I" + (folder.path() / "include").string()};
  EXPECT_FALSE(ask()->from_cache) << "a header of a header's header has changed";
  folder.write("include/nowhere.h", "");
  EXPECT_FALSE(ask()->from_cache) << "one that was missing has come";
  EXPECT_EQ(made(), 3);
  // A header that a macro names cannot be known beforehand, so such an image is not kept.
  request.program += "#include HEADER\n";
  ASSERT_NE(ask(), nullptr);
  ASSERT_NE(ask(), nullptr);
  EXPECT_EQ(made(), 5);
  EXPECT_EQ(cache.entries.size(), 3u);
}

TEST_F(Service, TheToolkitsHeadersBelongToTheCompiler) {
  folder.write("include/cuda_fp16.h", "// 1");
  nvrtcs = {kNew};
  nvrtcs[0].include = (folder.path() / "include").string();
  request.program += "#include <cuda_fp16.h>\n";
  ASSERT_NE(ask(), nullptr);
  EXPECT_TRUE(ask()->from_cache);
  EXPECT_NE(text(ask()->bytes).find("--include-path=" + nvrtcs[0].include), std::string::npos);
  folder.write("include/cuda_fp16.h", "// 2");
  EXPECT_FALSE(ask()->from_cache);
  nvrtcs = {};  // a machine without a toolkit
  EXPECT_TRUE(ask()->from_cache);
}

// ---- a plugin's kernels, compiled on demand

class OnDemand : public Service {
 protected:
  OnDemand() { request.kernels = {"f<float>", "f<int>", "g", "h"}; }
  bool can() {
    reasons.clear();
    return can_make(kernel_requests(request), context, &reasons);
  }
  bool make(CompiledKernels* kernels, const char* name) {
    reasons.clear();
    return kernels->make(name, context, &reasons);
  }
  opdock_kernel* find(CompiledKernels* kernels, const char* name) {
    opdock_kernel* kernel = nullptr;
    const Status found = kernels->find(name, &kernel);
    EXPECT_TRUE(found.ok()) << found.text;
    return kernel;
  }
  LoadsAll driver;
};

TEST_F(OnDemand, ExactlyTheKernelThatIsAskedForIsCompiled) {
  ASSERT_TRUE(can()) << all_text(reasons);
  CompiledKernels kernels(request, &driver, {OPDOCK_CUDA, 0});
  EXPECT_EQ(made(), 0);
  EXPECT_EQ(find(&kernels, "g"), nullptr);
  ASSERT_TRUE(make(&kernels, "g")) << all_text(reasons);
  EXPECT_EQ(made(), 1);
  const opdock_kernel* kernel = find(&kernels, "g");
  ASSERT_NE(kernel, nullptr);
  EXPECT_STREQ(kernel->image_name, "lowered_g");
  EXPECT_EQ(find(&kernels, "h"), nullptr);
  ASSERT_TRUE(make(&kernels, "g"));
  EXPECT_EQ(made(), 1);
  ASSERT_TRUE(make(&kernels, "f<int>"));
  EXPECT_EQ(made(), 2);
  EXPECT_EQ(driver.loads, 2);
  ASSERT_EQ(cache.entries.size(), 2u);
  EXPECT_EQ(cache.entries[0]->subject(), "test f<int> for sm_90a");
  EXPECT_EQ(find(&kernels, "g"), kernel) << "a kernel stays where it is";
}

// A later process finds each kernel without compiling, and without opening a compiler.
TEST_F(OnDemand, LaterNothingIsCompiled) {
  {
    CompiledKernels kernels(request, &driver, {OPDOCK_CUDA, 0});
    ASSERT_TRUE(make(&kernels, "h")) << all_text(reasons);
  }
  nvrtcs[0].path = "/nonexistent/libnvrtc.so.13";
  nvrtcs.resize(1);
  ASSERT_TRUE(can()) << all_text(reasons);
  CompiledKernels again(request, &driver, {OPDOCK_CUDA, 0});
  ASSERT_TRUE(make(&again, "h")) << all_text(reasons);
  EXPECT_EQ(made(), 1);
  EXPECT_FALSE(make(&again, "g"));
  EXPECT_TRUE(has(reasons, Code::kJitNoCompiler)) << all_text(reasons);
}

// Kernels that were compiled ahead of time are found.
TEST_F(OnDemand, WarmedKernelsAreFound) {
  std::vector<Reason> why;
  for (const CompileRequest& one : kernel_requests(request)) {
    ASSERT_NE(compile_image(one, context, &why), nullptr) << all_text(why);
  }
  EXPECT_EQ(made(), 4);
  nvrtcs.clear();
  context.denied = "OPDOCK_JIT=never";
  ASSERT_TRUE(can()) << all_text(reasons);
  CompiledKernels kernels(request, &driver, {OPDOCK_CUDA, 0});
  for (const std::string& name : request.kernels) {
    EXPECT_TRUE(make(&kernels, name.c_str())) << all_text(reasons);
  }
  EXPECT_EQ(made(), 4);
  cache.entries.pop_back();
  EXPECT_FALSE(can());
  EXPECT_TRUE(has(reasons, Code::kJitPolicy)) << all_text(reasons);
}

TEST_F(OnDemand, ThreadsMakeAKernelOnceAndDoNotWaitForOthers) {
  request.program += "// SLEEP=200\n";
  CompiledKernels kernels(request, &driver, {OPDOCK_CUDA, 0});
  // Each kernel's thread waits until the other kernel's compilation has begun.
  struct Meeting : Progress {
    std::mutex mutex;
    std::condition_variable both;
    int begun = 0;
    bool alone = false;
    void step(std::string_view, double) override {
      std::unique_lock lock(mutex);
      ++begun;
      both.notify_all();
      alone |= !both.wait_for(lock, std::chrono::seconds(20), [&] { return begun == 2; });
    }
    bool cancelled() override { return false; }
  } progress;
  context.progress = &progress;
  std::atomic<int> good{0};
  std::vector<std::jthread> threads;
  for (int i = 0; i < 12; ++i) {
    threads.emplace_back([&, i] {
      std::vector<Reason> why;
      good += kernels.make(i % 2 ? "g" : "h", context, &why);
    });
  }
  threads.clear();
  EXPECT_EQ(good, 12);
  EXPECT_EQ(made(), 2);
  EXPECT_EQ(driver.loads, 2);
  EXPECT_EQ(progress.begun, 2) << "each compilation is reported once";
  EXPECT_FALSE(progress.alone) << "one kernel had to wait for the other";
}

TEST_F(OnDemand, NothingIsMadeInACapture) {
  CompiledKernels kernels(request, &driver, {OPDOCK_CUDA, 0});
  opdock_kernel* kernel = nullptr;
  const Status refused = kernels.find("g", &kernel, false);
  EXPECT_EQ(refused.status, OPDOCK_UNSUPPORTED);
  EXPECT_NE(refused.text.find("opdock_prepare, before the capture"), std::string::npos)
      << refused.text;
  ASSERT_TRUE(make(&kernels, "g")) << all_text(reasons);
  EXPECT_EQ(kernels.find("g", &kernel, false).status, OPDOCK_OK);
  EXPECT_EQ(kernels.find("h", &kernel, false).status, OPDOCK_UNSUPPORTED);
}

}  // namespace
}  // namespace opdock_test
