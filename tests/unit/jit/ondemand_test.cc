// Tests a plugin that carries source and no image, through opdock.h with the stand-in libcuda, in
// child processes: when each kernel is compiled, and what is reported.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <latch>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "cache/cache.h"
#include "installed_compiler.h"
#include "opdock/opdock.h"

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr opdock_device kGood = {OPDOCK_CUDA, 0};
constexpr opdock_device kBad = {OPDOCK_CUDA, 1};  // kernel 0 does not compile for this GPU

class OnDemandPlugin : public opdock_test::InstalledCompiler {
 protected:
  OnDemandPlugin() { gpus_ = R"({"cuda": 13000, "gpus": [{"arch": "sm_90"}, {"arch": "sm_80"}]})"; }
  void SetUp() override {
    InstalledCompiler::SetUp();
    if (folder_.empty()) return;
    fs::create_directory(folder_ / "plugins");
    fs::copy_file(ONDEMAND_PLUGIN, folder_ / "plugins" / "ondemand.so");
  }

  // As in the base, and said() returns afterwards what the child wrote to stderr, which is not a
  // terminal.
  void in_child(const std::function<void()>& body) {
    InstalledCompiler::in_child([&] {
      const int file =
          open((folder_ / "stderr").c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
      EXPECT_EQ(dup2(file, STDERR_FILENO), STDERR_FILENO);
      open_runtime();
      body();
    });
  }

  // Returns what explain reports about the step that compiled for cuda:0, as "code: found".
  std::vector<std::string> jit_reasons() {
    std::vector<std::string> told;
    char* text = nullptr;
    EXPECT_EQ(opdock_explain_json(runtime_, "launches", &text, error_, sizeof error_), OPDOCK_OK);
    const json explanation = json::parse(text);
    opdock_free(text);
    for (const json& device : explanation.at("chain")) {
      if (device.at("device") != "cuda:0") continue;
      EXPECT_TRUE(device.at("serves")) << device.dump(1);
      for (const json& step : device.at("steps")) {
        if (step.at("step") != "jit") continue;
        EXPECT_EQ(step.at("outcome"), "used");
        for (const json& reason : step.at("reasons")) {
          told.push_back(reason.at("code").get<std::string>() + ": " +
                         reason.at("found").get<std::string>());
        }
      }
    }
    return told;
  }

  void open_runtime() {
    opdock_options options{};
    options.struct_size = sizeof options;
    const std::string place = (folder_ / "plugins").string();
    options.plugin_path = place.c_str();
    options.hooks_context = this;
    options.waiting = [](void* self, int32_t begins) {
      auto* test = static_cast<OnDemandPlugin*>(self);
      test->waits_ += begins != 0 ? 1 : -1;
      if (begins != 0) ++test->all_waits_;
    };
    options.cancelled = [](void* self) {
      return static_cast<OnDemandPlugin*>(self)->stop_ ? 1 : 0;
    };
    static const opdock_references references = {
        sizeof references,
        0,
        [](void*, const char*, const char*) { return int32_t{1}; },
        [](void* self, opdock_function*, opdock_device, const char*, const char* record, void** out,
           char*, uint32_t) {
          static_cast<OnDemandPlugin*>(self)->referred_record_ = record;
          *out = self;
          return opdock_status{OPDOCK_OK};
        },
        [](void* self, auto...) {
          ++static_cast<OnDemandPlugin*>(self)->referred_;
          return opdock_status{OPDOCK_OK};
        },
    };
    if (references_) options.references = &references;
    if (listens_) {
      options.progress = [](void* self, const char* text, double) {
        static_cast<OnDemandPlugin*>(self)->told_.emplace_back(text);
      };
    }
    ASSERT_EQ(opdock_runtime_create(&options, &runtime_, error_, sizeof error_), OPDOCK_OK)
        << error_;
  }
  opdock_function* function(const char* name) {
    opdock_function* found = nullptr;
    EXPECT_EQ(opdock_get_function(runtime_, name, &found, error_, sizeof error_), OPDOCK_OK)
        << error_;
    return found;
  }
  opdock_status prepare(const char* name, opdock_device device = kGood) {
    error_[0] = '\0';
    return opdock_prepare(function(name), device, error_, sizeof error_);
  }
  opdock_status call(int64_t which, opdock_device device = kGood, void* stream = nullptr,
                     const char* name = "launches") {
    float data[1] = {};
    int64_t shape[] = {1}, strides[] = {1};
    opdock_tensor x = {data, device, 1, {OPDOCK_DTYPE_FLOAT, 32, 1}, shape, strides, 0};
    opdock_value values[2] = {};
    values[0].tag = OPDOCK_TAG_TENSOR;
    values[0].as.tensor = &x;
    values[1].tag = OPDOCK_TAG_INT;
    values[1].as.i64 = which;
    opdock_call_options how{};
    how.struct_size = sizeof how;
    how.stream = stream;
    char error[8192] = "";
    const opdock_status status =
        opdock_invoke(function(name), &how, values, std::string(name) == "launches" ? 2 : 1,
                      nullptr, 0, error, sizeof error);
    if (status != OPDOCK_OK) std::snprintf(error_, sizeof error_, "%s", error);
    return status;
  }

  // Makes a stream of device 0; it is captured between begin() and end().
  void* stream() {
    const auto retain = driver_call<int (*)(void**, int)>("cuDevicePrimaryCtxRetain");
    const auto set = driver_call<int (*)(void*)>("cuCtxSetCurrent");
    const auto create = driver_call<int (*)(void**, unsigned)>("cuStreamCreate");
    void *context = nullptr, *made = nullptr;
    EXPECT_EQ(driver_call<int (*)(unsigned)>("cuInit")(0), 0);
    EXPECT_EQ(retain(&context, 0), 0);
    EXPECT_EQ(set(context), 0);
    EXPECT_EQ(create(&made, 0), 0);
    return made;
  }
  int begin(void* stream) {
    return driver_call<int (*)(void*, int)>("cuStreamBeginCapture_v2")(stream, 0);
  }
  int end(void* stream) {
    void* graph = nullptr;
    return driver_call<int (*)(void*, void**)>("cuStreamEndCapture")(stream, &graph);
  }
  template <class Function>
  Function driver_call(const char* name) {
    void* symbol = dlsym(driver_, name);
    EXPECT_NE(symbol, nullptr) << name;
    return reinterpret_cast<Function>(symbol);
  }

  size_t events(const std::string& kind) const {
    return soft_child::recorded(record(), kind).size();
  }
  size_t entries() {
    char* text = nullptr;
    EXPECT_EQ(opdock_cache_json("ls", nullptr, &text, error_, sizeof error_), OPDOCK_OK) << error_;
    const size_t count = json::parse(text).at("entries").size();
    opdock_free(text);
    return count;
  }
  static json reasons() {
    char* text = nullptr;
    EXPECT_EQ(opdock_take_reasons_json(&text, nullptr, 0), OPDOCK_OK);
    json found = json::parse(text);
    opdock_free(text);
    return found;
  }
  std::string said() const {
    std::ifstream file(folder_ / "stderr");
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

  opdock_runtime* runtime_ = nullptr;
  std::atomic<int> waits_{0}, all_waits_{0};
  std::atomic<bool> stop_{false};
  bool listens_ = false, references_ = false;
  int referred_ = 0;
  std::string referred_record_;
  std::vector<std::string> told_;
};

TEST_F(OnDemandPlugin, ACallCompilesWhatItLaunches) {
  in_child([&] {
    ASSERT_EQ(call(1), OPDOCK_OK) << error_;
    EXPECT_EQ(entries(), 1u);
    EXPECT_EQ(events("load"), 1u);
    ASSERT_EQ(call(1), OPDOCK_OK) << error_;
    EXPECT_EQ(entries(), 1u);
    all_waits_ = 0;
    ASSERT_EQ(call(3), OPDOCK_OK) << error_;
    EXPECT_EQ(all_waits_, 1) << "an interpreter may let others run while it compiles";
    EXPECT_EQ(entries(), 2u);
    EXPECT_EQ(events("load"), 2u);
    EXPECT_EQ(events("launch"), 3u);
    EXPECT_EQ(call(0, kGood, nullptr, "prepares"), OPDOCK_OK) << error_;
    EXPECT_EQ(entries(), 2u) << "its prepare asked for one that the other op has";
    EXPECT_EQ(waits_, 0);
  });
}

// No NVRTC knows such a GPU, so the plugin gets PTX for the newest architecture that one of them
// knows, and the driver compiles it.
TEST_F(OnDemandPlugin, AGpuNewerThanEveryCompilerGetsPtx) {
  gpus_ = R"({"cuda": 13000, "gpus": [{"arch": "sm_200"}]})";
  in_child([&] {
    ASSERT_EQ(call(1), OPDOCK_OK) << error_;
    EXPECT_EQ(entries(), 1u);
    EXPECT_EQ(events("launch"), 1u);
    EXPECT_EQ(jit_reasons(),
              std::vector<std::string>{"arch-ptx: a GPU for sm_200a, which no NVRTC here knows"});
  });
  EXPECT_NE(said().find("for compute_"), std::string::npos) << said();
  in_child([&] {
    ASSERT_EQ(call(1), OPDOCK_OK) << error_;
    // What is compiled ahead of time for this GPU is what a call asks for.
    char* text = nullptr;
    ASSERT_EQ(opdock_warm_json(runtime_, nullptr, 2, &text, error_, sizeof error_), OPDOCK_OK)
        << error_;
    const json warmed = json::parse(text);
    opdock_free(text);
    std::vector<std::string> outcomes;
    for (const json& image : warmed.at("images")) {
      EXPECT_EQ(image.at("arch").get<std::string>().rfind("compute_", 0), 0u) << image;
      outcomes.push_back(image.at("kernel").get<std::string>() + " " +
                         image.at("outcome").get<std::string>());
    }
    EXPECT_NE(std::find(outcomes.begin(), outcomes.end(), "add<1> cached"), outcomes.end())
        << warmed.dump(1);
    EXPECT_EQ(entries(), warmed.at("images").size());
  });
}

// Simulates a cache in which PTX stood in for this GPU, filled before the compiler was installed.
TEST_F(OnDemandPlugin, ACompilerThatHasComeIsTheCauseThatIsTold) {
  in_child([&] { ASSERT_EQ(call(1), OPDOCK_OK) << error_; });
  opdock::CacheOptions options;
  options.folder = (folder_ / "cache").string();
  opdock::Cache::open(options, nullptr)->remember("stand-in ondemand 1.0.0 sm_90a", "compute_80");
  in_child([&] {
    ASSERT_EQ(call(1), OPDOCK_OK) << error_;
    EXPECT_EQ(jit_reasons(), std::vector<std::string>{"arch-known: a compiler that knows sm_90a"});
  });
  in_child([&] {
    ASSERT_EQ(call(1), OPDOCK_OK) << error_;
    EXPECT_TRUE(jit_reasons().empty());
  });
}

// stderr is not a terminal here: one line for the plugin, and none if nothing is compiled.
TEST_F(OnDemandPlugin, OneLineTellsOfAllKernels) {
  in_child([&] {
    for (int64_t which : {1, 2, 3}) ASSERT_EQ(call(which), OPDOCK_OK) << error_;
    ASSERT_EQ(call(2, kBad), OPDOCK_OK) << error_;
  });
  const std::string first = said();
  EXPECT_EQ(std::count(first.begin(), first.end(), '\n'), 1) << first;
  EXPECT_EQ(first.rfind("opdock: compiling ondemand 1.0.0", 0), 0u) << first;
  in_child([&] {
    for (int64_t which : {1, 2, 3}) ASSERT_EQ(call(which), OPDOCK_OK) << error_;
    ASSERT_EQ(call(2, kBad), OPDOCK_OK) << error_;
    EXPECT_EQ(events("load"), 4u);
  });
  EXPECT_EQ(said(), "");
  // Kernels that are found in the cache first do not use up the one line.
  in_child([&] {
    ASSERT_EQ(call(1), OPDOCK_OK) << error_;
    ASSERT_EQ(call(0), OPDOCK_OK) << error_;
  });
  const std::string later = said();
  EXPECT_EQ(std::count(later.begin(), later.end(), '\n'), 1) << later;
  fs::remove_all(folder_ / "cache");
  in_child([&] { ASSERT_EQ(prepare("launches"), OPDOCK_OK) << error_; });
  const std::string all = said();
  EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), 1) << all;
}

TEST_F(OnDemandPlugin, TheProgramsHookHearsOfEach) {
  listens_ = true;
  in_child([&] {
    for (int64_t which : {1, 2, 2}) ASSERT_EQ(call(which), OPDOCK_OK) << error_;
    EXPECT_EQ(told_, (std::vector<std::string>{"compiling ondemand 1.0.0 add<1> for sm_90a", "",
                                               "compiling ondemand 1.0.0 add<2> for sm_90a", ""}));
  });
  EXPECT_EQ(said(), "");
}

TEST_F(OnDemandPlugin, PreparingMakesAllAndACaptureNeedsNothing) {
  in_child([&] {
    ASSERT_EQ(prepare("launches"), OPDOCK_OK) << error_;
    EXPECT_EQ(entries(), 4u);
    EXPECT_EQ(events("load"), 4u);
    EXPECT_EQ(waits_, 0);
    void* captured = stream();
    ASSERT_EQ(begin(captured), 0);
    for (int64_t which : {0, 1, 2, 3}) EXPECT_EQ(call(which, kGood, captured), OPDOCK_OK) << error_;
    EXPECT_EQ(end(captured), 0);
    EXPECT_EQ(events("load"), 4u);
    EXPECT_EQ(events("launch"), 4u);
  });
}

TEST_F(OnDemandPlugin, NothingIsCompiledInACapture) {
  in_child([&] {
    ASSERT_EQ(call(1), OPDOCK_OK) << error_;
    void* captured = stream();
    ASSERT_EQ(begin(captured), 0);
    EXPECT_EQ(call(1, kGood, captured), OPDOCK_OK) << error_;
    EXPECT_EQ(call(2, kGood, captured), OPDOCK_UNSUPPORTED);
    EXPECT_NE(std::string(error_).find("kernel \"add<2>\" not loaded on cuda:0"), std::string::npos)
        << error_;
    EXPECT_NE(std::string(error_).find("opdock_prepare, before the capture"), std::string::npos)
        << error_;
    EXPECT_EQ(end(captured), 0) << "the capture is as good as before";
    EXPECT_EQ(entries(), 1u);
    EXPECT_EQ(call(2), OPDOCK_OK) << error_;
  });
}

TEST_F(OnDemandPlugin, AFaultyKernelSaysSoAndLeavesTheOthers) {
  in_child([&] {
    ASSERT_EQ(call(1, kBad), OPDOCK_OK) << error_;
    for (int again = 0; again < 2; ++again) {
      EXPECT_EQ(call(0, kBad), OPDOCK_INCOMPATIBLE);
      const std::string text = error_;
      EXPECT_NE(text.find("kernel \"faulty<float>\" of plugin \"ondemand\" for cuda:1"),
                std::string::npos)
          << text;
      EXPECT_NE(text.find("ondemand.cuh(11)"), std::string::npos) << text;
      const json list = reasons();
      ASSERT_EQ(list.size(), 1u) << list;
      EXPECT_EQ(list[0].at("code"), "jit-source");
      EXPECT_EQ(list[0].at("step"), "jit");
    }
    EXPECT_EQ(call(0), OPDOCK_OK) << "on another GPU: " << error_;
    EXPECT_EQ(call(2, kBad), OPDOCK_OK) << error_;
    EXPECT_EQ(prepare("launches", kBad), OPDOCK_INCOMPATIBLE);
    EXPECT_NE(std::string(error_).find("ondemand.cuh(11)"), std::string::npos) << error_;
    EXPECT_EQ(entries(), 4u) << "three for sm_80, one for sm_90a";

    char* text = nullptr;
    ASSERT_EQ(opdock_explain_json(runtime_, "launches", &text, error_, sizeof error_), OPDOCK_OK);
    const json told = json::parse(text);
    opdock_free(text);
    size_t found = 0;
    for (const json& device : told.at("chain")) {
      for (const json& step : device.at("steps")) {
        for (const json& reason : step.at("reasons")) found += reason.at("code") == "jit-source";
      }
    }
    EXPECT_EQ(found, 1u) << "kept in the op's record, once: " << told.dump(1);
  });
}

// The first kernel that a call needs cannot be compiled; nothing has run yet, so the chain tries
// the next step.
TEST_F(OnDemandPlugin, WhereTheFirstKernelIsFaultyTheReferenceTakesTheCall) {
  references_ = true;
  in_child([&] {
    EXPECT_EQ(call(0, kBad), OPDOCK_OK) << error_;
    EXPECT_EQ(referred_, 1);
    EXPECT_NE(referred_record_.find("ondemand.cuh(11)"), std::string::npos) << referred_record_;
    EXPECT_EQ(call(1, kBad), OPDOCK_OK) << error_;
    EXPECT_EQ(referred_, 2) << "what a process has resolved stays";
    EXPECT_EQ(events("launch"), 0u);
    EXPECT_EQ(call(0), OPDOCK_OK) << "on another GPU: " << error_;
    EXPECT_EQ(referred_, 2);
    EXPECT_EQ(events("launch"), 1u);
  });
}

TEST_F(OnDemandPlugin, WhereTheFirstKernelIsFaultyAPlannedCallIsPlannedAnew) {
  references_ = true;
  in_child([&] {
    float data[1] = {};
    int64_t shape[] = {1}, strides[] = {1};
    opdock_tensor x = {data, kBad, 1, {OPDOCK_DTYPE_FLOAT, 32, 1}, shape, strides, 0};
    opdock_value values[2] = {};
    values[0].tag = OPDOCK_TAG_TENSOR;
    values[0].as.tensor = &x;
    values[1].tag = OPDOCK_TAG_INT;  // kernel 0
    opdock_plan plan{};
    plan.struct_size = sizeof plan;
    opdock_function* launches = function("launches");
    ASSERT_EQ(opdock_plan_call(launches, nullptr, values, 2, &plan, error_, sizeof error_),
              OPDOCK_OK)
        << error_;
    EXPECT_EQ(
        opdock_run_planned(launches, nullptr, &plan, values, 2, nullptr, 0, error_, sizeof error_),
        OPDOCK_OK)
        << error_;
    EXPECT_EQ(referred_, 1);
    EXPECT_EQ(events("launch"), 0u);
  });
}

TEST_F(OnDemandPlugin, WhereTheFirstKernelIsFaultyAndNothingElseServesAllStepsAreTold) {
  in_child([&] {
    for (int again = 0; again < 2; ++again) {
      EXPECT_EQ(call(0, kBad), OPDOCK_INCOMPATIBLE);
      const std::string text = error_;
      EXPECT_NE(text.find("nothing here runs it on cuda:1"), std::string::npos) << text;
      EXPECT_NE(text.find("ondemand.cuh(11)"), std::string::npos) << text;
      std::vector<std::string> codes;
      for (const json& reason : reasons()) codes.push_back(reason.at("code"));
      EXPECT_EQ(std::count(codes.begin(), codes.end(), "jit-source"), 1) << json(codes);
    }
    EXPECT_EQ(call(2, kBad), OPDOCK_OK) << "the source's other kernels are good: " << error_;
    EXPECT_EQ(events("launch"), 1u);
  });
}

TEST_F(OnDemandPlugin, IsStoppedAndGoesOnLater) {
  in_child([&] {
    ASSERT_EQ(call(1), OPDOCK_OK) << error_;
    stop_ = true;
    EXPECT_EQ(call(2), OPDOCK_CANCELLED) << error_;
    EXPECT_EQ(call(1), OPDOCK_OK) << "which needs nothing: " << error_;
    EXPECT_EQ(prepare("launches"), OPDOCK_CANCELLED) << error_;
    stop_ = false;
    EXPECT_EQ(call(2), OPDOCK_OK) << error_;
    EXPECT_EQ(prepare("launches"), OPDOCK_OK) << error_;
    EXPECT_EQ(entries(), 4u);
    EXPECT_EQ(waits_, 0);
  });
}

// Threads that wait for another thread's compilation report it; otherwise an interpreter would
// stand still.
TEST_F(OnDemandPlugin, ThreadsThatWaitSaySo) {
  in_child([&] {
    void* captured = stream();
    ASSERT_EQ(begin(captured), 0);
    EXPECT_EQ(call(0, kGood, captured, "prepares"), OPDOCK_UNSUPPORTED) << "but it is resolved";
    EXPECT_EQ(end(captured), 0);
    all_waits_ = 0;
    std::atomic<int> good{0};
    std::latch start(8);
    {
      std::vector<std::jthread> threads;
      for (int i = 0; i < 8; ++i) {
        threads.emplace_back([&] {
          start.arrive_and_wait();
          good += call(0, kGood, nullptr, "prepares") == OPDOCK_OK ? 1 : 0;
        });
      }
    }
    EXPECT_EQ(good, 8) << error_;
    EXPECT_EQ(entries(), 1u);
    EXPECT_EQ(waits_, 0);
    EXPECT_GE(all_waits_, 2) << "one compiles, at least one other waits for it";
  });
}

}  // namespace
