// Tests the way from a folder to a launch, through opdock.h only: a packed plugin is found and
// checked, its image is chosen for each of two different GPUs, and its kernel is launched on the
// stand-in libcuda.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "note/file_facts.h"
#include "opdock/opdock.h"
#include "support/soft_child.h"

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// sm_78 can run the image for sm_75: same major number, lower minor number.
constexpr char kTwoGpus[] =
    R"({"cuda": 13000, "release": "580.65.06",
        "gpus": [{"arch": "sm_90", "memory": 1000000}, {"arch": "sm_78", "memory": 1000000}]})";

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

opdock::FileFacts facts_of(const fs::path& path) {
  int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  EXPECT_GE(file, 0) << path;
  opdock::FileFacts facts =
      opdock::read_file_facts(file, fs::file_size(path), path.string(), opdock::Depth::kJudge);
  close(file);
  return facts;
}

// Returns the digest that the note names for an architecture's image, or "" if there is none.
std::string digest_of(const opdock::FileFacts& facts, const std::string& arch) {
  for (const opdock::ImageClaim& image : facts.note->images) {
    if (image.arch == arch) return image.sha256;
  }
  return "";
}

// A folder with a copy of the noop plugin, and calls of its op that launches a kernel.
class PackedPlugin : public testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/opdock-packed-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    folder_ = pattern;
    fs::create_directory(folder_ / "plugins");
    fs::copy_file(PACKED_PLUGIN, folder_ / "plugins" / "noop.so");
    facts_ = facts_of(folder_ / "plugins" / "noop.so");
    ASSERT_TRUE(facts_.note);
    if (digest_of(facts_, "sm_90").empty() || digest_of(facts_, "sm_75").empty()) {
      GTEST_SKIP() << "the plugin was packed without images for sm_90 and sm_75";
    }
  }
  void TearDown() override {
    if (!folder_.empty()) fs::remove_all(folder_);
  }

  // Runs `body` in a child, because the driver's state belongs to the process.
  void in_child(const std::function<void()>& body) {
    soft_child::run([&] {
      setenv("OPDOCK_SOFTGPU", kTwoGpus, 1);
      setenv("OPDOCK_SOFTGPU_RECORD", record().c_str(), 1);
      setenv("LD_LIBRARY_PATH", SOFTGPU_FOLDER, 1);  // for a helper process
      unsetenv("CUDA_VISIBLE_DEVICES");
      // Uses only the packed images: no run-time compilation and no earlier cache.
      setenv("OPDOCK_JIT", "never", 1);
      setenv("OPDOCK_CACHE_DIR", (folder_ / "cache").c_str(), 1);
      soft_child::load_cuda(SOFTGPU_FOLDER);
      body();
    });
  }

  opdock_function* function() {
    opdock_options options{};
    options.struct_size = sizeof options;
    const std::string place = (folder_ / "plugins").string();
    options.plugin_path = place.c_str();
    opdock_runtime* runtime = nullptr;
    EXPECT_EQ(opdock_runtime_create(&options, &runtime, error_, sizeof error_), OPDOCK_OK)
        << error_;
    opdock_function* found = nullptr;
    EXPECT_EQ(opdock_get_function(runtime, "noop_launch", &found, error_, sizeof error_), OPDOCK_OK)
        << error_;
    return found;
  }

  opdock_status call(opdock_function* function, int gpu) {
    float data[8] = {};
    int64_t shape[] = {8}, strides[] = {1};
    opdock_tensor x = {data, {OPDOCK_CUDA, gpu}, 1, {OPDOCK_DTYPE_FLOAT, 32, 1}, shape, strides, 0};
    opdock_value value{};
    value.tag = OPDOCK_TAG_TENSOR;
    value.as.tensor = &x;
    return opdock_invoke(function, nullptr, &value, 1, nullptr, 0, error_, sizeof error_);
  }

  fs::path record() const { return folder_ / "record"; }

  fs::path folder_;
  opdock::FileFacts facts_;
  char error_[4096] = "";
};

TEST_F(PackedPlugin, LaunchesTheImageOfEachGpu) {
  in_child([&] {
    opdock_function* noop = function();
    ASSERT_NE(noop, nullptr);
    EXPECT_TRUE(soft_child::recorded(record(), "context").empty()) << "before any call";
    for (int gpu : {0, 1, 1}) ASSERT_EQ(call(noop, gpu), OPDOCK_OK) << error_;

    // The driver saw exactly the bytes that the note vouches for, once for each GPU.
    std::vector<std::string> loaded;
    for (const json& load : soft_child::recorded(record(), "load"))
      loaded.push_back(load.at("sha256"));
    EXPECT_EQ(loaded,
              (std::vector<std::string>{digest_of(facts_, "sm_90"), digest_of(facts_, "sm_75")}));
    std::vector<int> devices;
    for (const json& launch : soft_child::recorded(record(), "launch")) {
      EXPECT_EQ(launch.at("function"), "_Z4noopv");  // the name in the image
      devices.push_back(launch.at("device"));
    }
    EXPECT_EQ(devices, (std::vector<int>{0, 1, 1}));
  });
}

TEST_F(PackedPlugin, DoesNotGiveADamagedImageToTheDriver) {
  const fs::path path = folder_ / "plugins" / "noop.so";
  std::string bytes = read_file(path);
  for (const opdock::DeviceImage& image : facts_.images) {
    // Far beyond the image's headers, which the verdict needs.
    if (image.arch == "sm_75") bytes.at(image.offset + image.size / 2) ^= 1;
  }
  std::ofstream(path, std::ios::binary) << bytes;
  in_child([&] {
    opdock_function* noop = function();
    ASSERT_NE(noop, nullptr);
    EXPECT_EQ(call(noop, 1), OPDOCK_INCOMPATIBLE);
    EXPECT_NE(std::string(error_).find("claim-digest"), std::string::npos) << error_;
    EXPECT_EQ(call(noop, 0), OPDOCK_OK) << error_;  // its image is intact
    EXPECT_EQ(soft_child::recorded(record(), "load").size(), 1u);
  });
}

}  // namespace
