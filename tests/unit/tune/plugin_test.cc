// Tests a plugin that asks tuning questions, through opdock.h, on the CPU and on the stand-in
// libcuda, whose record shows how it launched. Each test runs in a child, because loaded plugins
// belong to the process.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cache_folder.h"
#include "note/file_facts.h"
#include "opdock/opdock.h"
#include "support/soft_child.h"

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr char kTwoGpus[] =
    R"({"cuda": 13000, "release": "580.65.06",
        "gpus": [{"arch": "sm_90", "memory": 1000000, "name": "One"},
                 {"arch": "sm_90", "memory": 1000000, "name": "Two"}]})";
constexpr opdock_device kCpu = {OPDOCK_CPU, 0};

class TunedPlugin : public testing::Test {
 protected:
  TunedPlugin() {
    opdock::testing::make_folder(folder_.path("plugins"));
    fs::copy_file(WAYS_PLUGIN, folder_.path("plugins/ways.so"));
  }

  void in_child(const std::function<void()>& body) {
    soft_child::run([&] {
      setenv("OPDOCK_SOFTGPU", kTwoGpus, 1);
      setenv("OPDOCK_SOFTGPU_RECORD", record().c_str(), 1);
      setenv("LD_LIBRARY_PATH", SOFTGPU_FOLDER, 1);  // for a helper process
      unsetenv("CUDA_VISIBLE_DEVICES");
      setenv("OPDOCK_JIT", "never", 1);
      setenv("OPDOCK_CACHE_DIR", folder_.path("cache").c_str(), 1);
      fs::remove(record());
      soft_child::load_cuda(SOFTGPU_FOLDER);
      options_.struct_size = sizeof options_;
      plugins_ = folder_.path("plugins");
      options_.plugin_path = plugins_.c_str();
      options_.log_context = &logged_;
      options_.log = [](void* context, int32_t, const char* message) {
        *static_cast<std::string*>(context) += message;
      };
      ASSERT_EQ(opdock_runtime_create(&options_, &runtime_, error_, sizeof error_), OPDOCK_OK);
      ASSERT_EQ(opdock_get_function(runtime_, "ways", &ways_, error_, sizeof error_), OPDOCK_OK)
          << error_;
      body();
    });
  }

  // Returns the variant that the op used, or -1 if it failed.
  int64_t call(opdock_device device = kCpu, int64_t question = 1) {
    float data[1] = {};
    int64_t shape[] = {1}, strides[] = {1};
    const opdock_tensor x = {data, device, 1, {OPDOCK_DTYPE_FLOAT, 32, 1}, shape, strides, 0};
    opdock_value args[2] = {}, way{};
    args[0].tag = OPDOCK_TAG_TENSOR;
    args[0].as.tensor = &x;
    args[1].tag = OPDOCK_TAG_INT;
    args[1].as.i64 = question;
    const opdock_status done =
        opdock_invoke(ways_, nullptr, args, 2, &way, 1, error_, sizeof error_);
    return done == OPDOCK_OK ? way.as.i64 : -1;
  }
  // Without an NVRTC, the plugin is packed without an image.
  bool has_image() const {
    const int file = open(WAYS_PLUGIN, O_RDONLY | O_CLOEXEC);
    const opdock::FileFacts facts = opdock::read_file_facts(file, fs::file_size(WAYS_PLUGIN),
                                                            WAYS_PLUGIN, opdock::Depth::kJudge);
    close(file);
    return std::any_of(facts.images.begin(), facts.images.end(),
                       [](const opdock::DeviceImage& image) { return image.arch == "sm_90"; });
  }
  // Returns the number of blocks of each launch.
  std::vector<int> blocks() const {
    std::vector<int> found;
    for (const json& launch : soft_child::recorded(record(), "launch"))
      found.push_back(launch.at("grid").at(0));
    return found;
  }

  json tuning(const char* action, const json& request = nullptr) {
    char* text = nullptr;
    const opdock_status done = opdock_tuning_json(
        action, request.is_null() ? nullptr : request.dump().c_str(), &text, error_, sizeof error_);
    EXPECT_EQ(done, OPDOCK_OK) << error_;
    json found = text == nullptr ? json() : json::parse(text);
    opdock_free(text);
    return found;
  }
  // Returns what the op asked on the device, as the request to store `choice` for it.
  json request(opdock_device device, int choice) {
    tuning("measure");
    call(device);
    const json asked = tuning("asked").at("asked");
    tuning("stop");
    EXPECT_EQ(asked.size(), 1u) << asked;
    json made = asked.at(0);
    EXPECT_EQ(made.at("op"), "ways");
    EXPECT_EQ(made.at("count"), 3);
    made["results"] = {{{"question", made.at("question")},
                        {"choice", choice},
                        {"count", made.at("count")},
                        {"situation", "ways 1"},
                        {"default_us", 6000.0},
                        {"best_us", 1000.5}}};
    return made;
  }
  std::string record() const { return folder_.path("record"); }

  opdock::testing::CacheFolder folder_;
  opdock_options options_{};
  std::string plugins_, logged_;
  opdock_runtime* runtime_ = nullptr;
  opdock_function* ways_ = nullptr;
  char error_[4096] = "";
};

TEST_F(TunedPlugin, GoesItsOwnWayWhereNothingWasMeasured) {
  in_child([&] {
    EXPECT_EQ(call(), 0) << error_;
    EXPECT_EQ(logged_, "");
    EXPECT_FALSE(fs::exists(folder_.path("cache"))) << "looking makes no folder";
  });
}

TEST_F(TunedPlugin, GoesTheStoredWayFromThenOnHereAndInLaterProcesses) {
  in_child([&] {
    const json stored = request(kCpu, 2);
    EXPECT_EQ(stored.at("plugin"), "ways");
    EXPECT_EQ(stored.at("version"), "1.0.0");
    EXPECT_EQ(stored.at("build").get<std::string>().size(), 64u);
    EXPECT_NE(stored.at("device"), "");
    EXPECT_EQ(tuning("store", stored).at("folder"), folder_.path("cache"));
    EXPECT_EQ(call(), 2) << error_;
    EXPECT_EQ(call(kCpu, 5), 0) << "another question";
  });
  in_child([&] {
    EXPECT_EQ(call(), 2) << error_;
    const json listed = tuning("list").at("stored");
    ASSERT_EQ(listed.size(), 1u);
    EXPECT_EQ(listed[0].at("plugin"), "ways");
    EXPECT_EQ(listed[0].at("results")[0].at("question"), "0x1");
    EXPECT_EQ(listed[0].at("results")[0].at("choice"), 2);
    EXPECT_EQ(listed[0].at("results")[0].at("best_us"), 1000.5);
    EXPECT_EQ(tuning("forget", {{"plugin", "other"}}).at("stored").size(), 0u);
    EXPECT_EQ(tuning("forget", {{"plugin", "ways"}}).at("stored").size(), 1u);
    EXPECT_EQ(call(), 2) << "what this process has loaded stays";
  });
  in_child([&] { EXPECT_EQ(call(), 0) << error_; });
}

TEST_F(TunedPlugin, ANumberThatIsNoneOfItsWaysBreaksNoCall) {
  in_child([&] { tuning("store", request(kCpu, 3)); });
  in_child([&] { EXPECT_EQ(call(), 0) << error_; });
}

TEST_F(TunedPlugin, AnotherBuildOrDeviceIsNotMeant) {
  in_child([&] {
    for (const char* member : {"build", "device", "version", "plugin"}) {
      json stored = request(kCpu, 2);
      stored[member] = stored.at(member).get<std::string>() + "0";
      tuning("store", stored);
    }
    EXPECT_EQ(tuning("list").at("stored").size(), 4u);
  });
  in_child([&] { EXPECT_EQ(call(), 0) << error_; });
}

TEST_F(TunedPlugin, TriesEachWayWhileItIsMeasured) {
  in_child([&] {
    for (int way : {0, 1, 2, -1}) {
      tuning("measure", {{"question", "0x1"}, {"choice", way}});
      EXPECT_EQ(call(), way < 0 ? 0 : way);
    }
    tuning("measure", {{"choice", 1}});
    EXPECT_EQ(call(kCpu, 5), 1) << "every question";
    tuning("measure", {{"question", "0x9"}, {"choice", 2}});
    EXPECT_EQ(call(kCpu, 9), -1);
    EXPECT_NE(std::string(error_).find("way 2 cannot be taken"), std::string::npos) << error_;
    tuning("stop");
    EXPECT_EQ(call(kCpu, 9), 0) << error_;
  });
}

TEST_F(TunedPlugin, ADamagedEntryIsSaidAndIgnored) {
  std::string path;
  in_child([&] { tuning("store", request(kCpu, 2)); });
  for (const auto& entry : fs::recursive_directory_iterator(folder_.path("cache/v1/tuning"))) {
    if (entry.is_regular_file()) path = entry.path();
  }
  std::string bytes = opdock::testing::read(path);
  ASSERT_GT(bytes.size(), 100u);
  bytes[100] ^= 4;
  opdock::testing::write(path, bytes);
  in_child([&] {
    EXPECT_EQ(call(), 0) << error_;
    EXPECT_NE(logged_.find("cache-damaged"), std::string::npos) << logged_;
  });
  in_child([&] {
    EXPECT_EQ(call(), 0) << error_;
    EXPECT_EQ(logged_, "") << "said once";
  });
}

TEST_F(TunedPlugin, LaunchesInTheStoredWayOnThatKindOfGpu) {
  const opdock_device one = {OPDOCK_CUDA, 0}, two = {OPDOCK_CUDA, 1};
  if (!has_image()) GTEST_SKIP() << "found no NVRTC to pack the plugin's kernel with";
  in_child([&] {
    const json stored = request(one, 2);
    EXPECT_NE(stored.at("device").get<std::string>().find("One, sm_90, "), std::string::npos)
        << stored;
    tuning("store", stored);
    EXPECT_EQ(call(one), 2) << error_;
    EXPECT_EQ(blocks(), (std::vector<int>{1, 3}));
  });
  in_child([&] {
    EXPECT_EQ(call(one), 2) << error_;
    EXPECT_EQ(call(two), 0) << "a GPU of another name";
    EXPECT_EQ(call(kCpu), 0);
    EXPECT_EQ(blocks(), (std::vector<int>{3, 1}));
  });
}

TEST_F(TunedPlugin, RequestsThatCannotBeAreRefused) {
  in_child([&] {
    const std::vector<std::pair<const char*, const char*>> wrong = {
        {"nothing", "{}"},
        {nullptr, "{}"},
        {"measure", "["},
        {"measure", "[]"},
        {"measure", R"({"question": 1, "choice": 1})"},
        {"measure", R"({"question": "1", "choice": 1})"},
        {"measure", R"({"question": "0x", "choice": 1})"},
        {"measure", R"({"question": "0x1"})"},
        {"measure", R"({"question": "0x1", "choice": -2})"},
        {"measure", R"({"choice": "1"})"},
        {"measure", R"({"question": "0x1", "choice": 4294967296})"},
        {"store", "{}"},
        {"store", R"({"plugin": "a", "version": "1", "build": "0", "device": "cpu"})"},
        {"store", R"({"plugin": "a", "version": "1", "build": "0", "device": "cpu",
                      "results": [1]})"},
        {"forget", R"({"plugin": 1})"}};
    for (const auto& [action, request] : wrong) {
      char* text = nullptr;
      EXPECT_EQ(opdock_tuning_json(action, request, &text, error_, sizeof error_),
                OPDOCK_INVALID_ARGUMENT)
          << request;
      EXPECT_NE(std::string(error_).find("wanted"), std::string::npos) << error_;
      EXPECT_EQ(text, nullptr);
    }
    EXPECT_EQ(opdock_tuning_json("list", nullptr, nullptr, error_, sizeof error_),
              OPDOCK_INVALID_ARGUMENT);
  });
}

TEST_F(TunedPlugin, WithoutACacheNothingCanBeStored) {
  in_child([&] {
    const json stored = request(kCpu, 2);
    setenv("OPDOCK_CACHE_DIR", "/dev/null/cache", 1);
    char* text = nullptr;
    EXPECT_EQ(opdock_tuning_json("store", stored.dump().c_str(), &text, error_, sizeof error_),
              OPDOCK_INCOMPATIBLE);
    EXPECT_NE(std::string(error_).find("cache-unusable"), std::string::npos) << error_;
    EXPECT_EQ(call(), 0);
  });
}

}  // namespace
