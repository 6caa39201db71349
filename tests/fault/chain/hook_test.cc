// Tests hooks that call the library: a request that can be served is served, and one that would
// wait for itself is an error at once. SIGALRM ends a thread that waits for itself forever.
// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <latch>
#include <thread>

#include "chain_fixture.h"

namespace opdock::testing {
namespace {

class Hooks : public ChainFixture {
 protected:
  Hooks() { alarm(100); }
  ~Hooks() override { alarm(0); }

  // Runs `inner` in the first hook, but not in hooks that `inner` itself causes.
  static std::function<void(const std::string&)> once(int* count, std::function<void()> inner) {
    return [count, inner = std::move(inner)](const std::string&) {
      if (++*count == 1) inner();
    };
  }
  static opdock_status list(opdock_runtime* runtime, int32_t rescan) {
    char* text = nullptr;
    const opdock_status status = opdock_list_json(runtime, rescan, &text, nullptr, 0);
    opdock_free(text);
    return status;
  }
  static opdock_status doctor(opdock_runtime* runtime) {
    char* text = nullptr;
    const opdock_status status = opdock_doctor_json(runtime, &text, nullptr, 0);
    opdock_free(text);
    return status;
  }
  static Json build(opdock_runtime* runtime, const std::string& folder) {
    char* text = nullptr;
    EXPECT_EQ(opdock_build_json(runtime, folder.c_str(), "{}", &text, nullptr, 0), OPDOCK_OK);
    Json json = Json::parse(text);
    opdock_free(text);
    return json;
  }
};

// A scan that logs a warning: everybody can write the list of trusted places.
class LogHookInAScan : public Hooks {
 protected:
  LogHookInAScan() {
    top_.add("good", "plugins/good.so");
    std::filesystem::create_directories(path("config/opdock"));
    top_.write("config/opdock/trusted", "/\n");
    chmod(path("config/opdock/trusted").c_str(), 0666);
    setenv("XDG_CONFIG_HOME", path("config").c_str(), 1);
  }
  // Returns the result of `inner`, called by the hook.
  opdock_status in_hook(const std::function<opdock_status(opdock_runtime*)>& inner) {
    Program program;
    int count = 0;
    opdock_status status = OPDOCK_INTERNAL;
    RuntimePtr made;
    program.on_log = once(&count, [&] { status = inner(made.get()); });
    made = runtime(&program);
    EXPECT_EQ(list(made.get(), 0), OPDOCK_OK);
    EXPECT_GE(count, 1);
    return status;
  }
};

TEST_F(LogHookInAScan, Lists) {
  EXPECT_EQ(in_hook([](opdock_runtime* runtime) { return list(runtime, 0); }), OPDOCK_OK);
}

TEST_F(LogHookInAScan, ScansAgain) {
  EXPECT_EQ(in_hook([](opdock_runtime* runtime) { return list(runtime, 1); }), OPDOCK_OK);
}

TEST_F(LogHookInAScan, LooksUpAndLoads) {
  EXPECT_EQ(in_hook([](opdock_runtime* runtime) { return resolve(runtime, "good").status; }),
            OPDOCK_OK);
}

TEST_F(LogHookInAScan, AsksTheDoctor) {
  EXPECT_EQ(in_hook(doctor), OPDOCK_OK);
}

TEST_F(Hooks, OfAThreadSafeOpsLogMayCallTheOp) {
  top_.add("run_says", "plugins/run_says.so");
  Program program;
  int count = 0;
  Outcome inner;
  RuntimePtr made;
  program.on_log = [&](const std::string& text) {
    if (text == "run" && ++count == 1) inner = call(made.get(), "run_says");
  };
  made = runtime(&program);
  EXPECT_EQ(call(made.get(), "run_says").status, OPDOCK_OK);
  EXPECT_EQ(inner.status, OPDOCK_OK) << inner.text;
  EXPECT_EQ(count, 2);
}

TEST_F(Hooks, OfAnotherOpsLogGetAnError) {
  top_.add("serial_run_says", "plugins/serial_run_says.so");
  Program program;
  int count = 0;
  Outcome inner;
  RuntimePtr made;
  program.on_log = [&](const std::string& text) {
    if (text == "run" && ++count == 1) inner = call(made.get(), "serial_run_says");
  };
  made = runtime(&program);
  EXPECT_EQ(call(made.get(), "serial_run_says").status, OPDOCK_OK);
  EXPECT_EQ(inner.status, OPDOCK_INVALID_ARGUMENT);
  EXPECT_NE(inner.text.find("within-itself"), std::string::npos) << inner.text;
  // the refusal leaves no state behind
  EXPECT_EQ(call(made.get(), "serial_run_says").status, OPDOCK_OK);
}

TEST_F(Hooks, OfAnOpsLogMayUseAnotherRuntime) {
  top_.add("run_says", "plugins/run_says.so");
  top_.add("good_b", "plugins/good_b.so");
  Program program;
  int count = 0;
  Outcome inner;
  program.on_log = [&](const std::string& text) {
    if (text == "run" && ++count == 1) inner = call(runtime().get(), "good_b");
  };
  const RuntimePtr made = runtime(&program);
  EXPECT_EQ(call(made.get(), "run_says").status, OPDOCK_OK);
  EXPECT_EQ(inner.status, OPDOCK_OK) << inner.text;
}

// Called by the plugin's init, while the plugin is being loaded.
std::function<void()> called_by_init;
void call_it() {
  if (called_by_init) called_by_init();
}

TEST_F(Hooks, OfALoadGetAnErrorForThePluginAndNothingElseIsTried) {
  top_.add("init_calls", "plugins/init_calls.so");
  setenv("OPDOCK_CASE_CALLS", std::to_string(reinterpret_cast<uintptr_t>(call_it)).c_str(), 1);
  Program program;
  program.has_runner = true;
  program.references["init_calls"] = OPDOCK_OK;
  int count = 0;
  Outcome inner;
  const RuntimePtr made = runtime(&program), other = runtime(&program);
  called_by_init = [&] {
    if (++count == 1) inner = resolve(other.get(), "init_calls");
  };
  const Outcome outer = resolve(made.get(), "init_calls");
  called_by_init = nullptr;
  unsetenv("OPDOCK_CASE_CALLS");
  ASSERT_EQ(count, 1);
  EXPECT_EQ(outer.status, OPDOCK_OK) << outer.text;
  EXPECT_EQ(inner.status, OPDOCK_INVALID_ARGUMENT);
  EXPECT_NE(inner.text.find("within-itself"), std::string::npos) << inner.text;
  EXPECT_TRUE(program.records.empty());
  EXPECT_EQ(resolve(other.get(), "init_calls").status, OPDOCK_OK);
}

TEST_F(Hooks, OfABuildGetAnErrorForTheOpThatIsBuilt) {
  add_source("good");
  Program program;
  int count = 0;
  Outcome inner;
  RuntimePtr made;
  program.on_progress = once(&count, [&] { inner = resolve(made.get(), "good"); });
  made = runtime(&program);
  EXPECT_EQ(resolve(made.get(), "good").status, OPDOCK_OK);
  EXPECT_GE(count, 1);
  EXPECT_EQ(inner.status, OPDOCK_INVALID_ARGUMENT);
  EXPECT_NE(inner.text.find("within-itself"), std::string::npos) << inner.text;
  EXPECT_EQ(builds(), 1u);
}

// Uses a progress hook of the build itself, because the first progress hook comes before the
// build's lock is held.
TEST_F(Hooks, OfABuildGetAnErrorForABuildOfTheSamePlugin) {
  const std::string folder = add_source("good");
  tool("ninja",
       "echo build >> $TOP/builds\n/bin/mkdir -p \"$2/plugins\"\n"
       "echo '[1/2] one'\n/bin/cp " +
           case_path("good") + " \"$2/plugins/good.so\"");
  Program program;
  Json inner;
  RuntimePtr made;
  program.on_progress = [&](const std::string& text) {
    if (inner.is_null() && text.find("building") != text.npos) inner = build(made.get(), folder);
  };
  made = runtime(&program);
  EXPECT_EQ(resolve(made.get(), "good").status, OPDOCK_OK);
  ASSERT_FALSE(inner.is_null());
  EXPECT_TRUE(inner.at("path").is_null()) << inner.dump(2);
  EXPECT_NE(inner.at("reasons").dump().find("within-itself"), std::string::npos) << inner.dump(2);
  EXPECT_EQ(builds(), 1u);
}

TEST_F(Hooks, OfABuildAreServedWhatElseTheyAskFor) {
  add_source("good");
  top_.add("good_b", "plugins/good_b.so");
  Program program;
  int count = 0;
  opdock_status other = OPDOCK_INTERNAL, listed = OPDOCK_INTERNAL, asked = OPDOCK_INTERNAL;
  RuntimePtr made;
  program.on_progress = once(&count, [&] {
    other = resolve(made.get(), "good_b").status;
    listed = list(made.get(), 1);
    asked = doctor(made.get());
    explain(made.get(), "good");
  });
  made = runtime(&program);
  EXPECT_EQ(resolve(made.get(), "good").status, OPDOCK_OK);
  EXPECT_EQ(other, OPDOCK_OK);
  EXPECT_EQ(listed, OPDOCK_OK);
  EXPECT_EQ(asked, OPDOCK_OK);
}

TEST_F(Hooks, TheDoctorTellsOfAPluginThatWasOverwrittenWhileLoaded) {
  top_.add("good_b", "plugins/good_b.so");
  const RuntimePtr made = runtime();
  const auto loaded = [&] {
    char* text = nullptr;
    EXPECT_EQ(opdock_doctor_json(made.get(), &text, nullptr, 0), OPDOCK_OK);
    const Json json = Json::parse(text);
    opdock_free(text);
    for (const Json& one : json.at("checks")) {
      if (one.at("name") == "loaded plugins") return one;
    }
    return Json();
  };
  ASSERT_EQ(resolve(made.get(), "good_b").status, OPDOCK_OK);
  const std::string file = path("plugins/good_b.so");
  EXPECT_EQ(loaded().at("found").dump().find(file), std::string::npos);
  std::filesystem::last_write_time(
      file, std::filesystem::last_write_time(file) + std::chrono::seconds(1));
  const Json told = loaded();
  EXPECT_FALSE(told.at("ok"));
  EXPECT_NE(told.at("found").dump().find(file + ", overwritten in place"), std::string::npos);
  EXPECT_NE(told.at("advice").dump().find("restart the program"), std::string::npos);
}

// Two threads, each in a hook of its own build, ask for the op that the other thread builds.
TEST_F(Hooks, ThatWouldWaitForEachOtherAreTold) {
  add_source("good");
  add_source("good_b");
  static thread_local int depth = 0;
  std::latch both(2);
  std::atomic<int> refused{0};
  Program program;
  RuntimePtr made;
  static thread_local const char* wanted = nullptr;
  program.on_progress = [&](const std::string& text) {
    if (depth++ == 0 && text.find("building") != text.npos && wanted != nullptr) {
      const char* const other = wanted;
      wanted = nullptr;
      both.arrive_and_wait();
      refused += resolve(made.get(), other).status == OPDOCK_INVALID_ARGUMENT ? 1 : 0;
    }
    --depth;
  };
  made = runtime(&program);
  std::atomic<int> served{0};
  const auto ask = [&](const char* own, const char* other) {
    wanted = other;
    served += resolve(made.get(), own).status == OPDOCK_OK ? 1 : 0;
  };
  std::thread one(ask, "good", "good_b"), two(ask, "good_b", "good");
  one.join();
  two.join();
  EXPECT_EQ(refused, 1);  // one is refused, and the other waits for it
  EXPECT_EQ(served, 2);
}

}  // namespace
}  // namespace opdock::testing
