// SPDX-License-Identifier: Apache-2.0
#include "test_support.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <fstream>
#include <list>
#include <mutex>

#include "base/sha256.h"

namespace softgpu_test {
namespace {

namespace fs = std::filesystem;

fs::path& own_folder() {
  static fs::path path;
  return path;
}

void* library_handle = nullptr;

std::string sha256_of(const std::string& text) {
  return opdock::to_hex(
      opdock::sha256({reinterpret_cast<const uint8_t*>(text.data()), text.size()}));
}

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// Shares compiled kernels among all tests, which is safe because their names come from their
// content.
void share_libraries(const fs::path& code) {
  const fs::path shared = fs::path(BUILD_FOLDER) / "test-kernels";
  fs::create_directories(shared);
  fs::create_directory_symlink(shared, code / "lib");
}

int run(const std::string& library, json config, const std::function<void()>& body) {
  config["code"] = (folder() / "code").string();
  if (!config.contains("findings")) config["findings"] = (folder() / "findings").string();
  setenv("OPDOCK_SOFTGPU", config.dump().c_str(), 1);
  setenv("OPDOCK_SOFTGPU_RECORD", (folder() / "record").c_str(), 1);
  for (const char* name : {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"}) {
    unsetenv(name);
  }
  library_handle = dlopen((fs::path(BUILD_FOLDER) / library).c_str(), RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library_handle, nullptr) << dlerror();
  try {  // an exception that escaped would run the parent's other tests
    if (library_handle) body();
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
  return testing::Test::HasFailure() ? 1 : 0;
}

}  // namespace

fs::path folder() {
  return own_folder();
}

std::vector<std::string> findings() {
  std::vector<std::string> texts;
  std::ifstream file(folder() / "findings");
  for (std::string line; std::getline(file, line);) {
    texts.push_back(json::parse(line).at("finding").get<std::string>());
  }
  return texts;
}

bool found(const std::string& what) {
  const std::vector<std::string> texts = findings();
  return std::any_of(texts.begin(), texts.end(),
                     [&](const std::string& text) { return text.find(what) != text.npos; });
}

std::vector<json> events(const std::string& event) {
  std::vector<json> found;
  std::ifstream file(folder() / "record");
  for (std::string line; std::getline(file, line);) {
    if (line.find('"' + event + '"') == line.npos) continue;  // cheaper than parsing each line
    json parsed = json::parse(line);
    if (parsed["event"] == event) found.push_back(std::move(parsed));
  }
  return found;
}

void in_child(const std::string& library, const json& config, const std::function<void()>& body,
              const std::function<void()>& after) {
  std::string name = (fs::temp_directory_path() / "opdock-softgpu-XXXXXX").string();
  ASSERT_NE(mkdtemp(name.data()), nullptr);
  own_folder() = name;
  fs::create_directories(folder() / "code");
  share_libraries(folder() / "code");
  std::fflush(nullptr);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  // std::exit runs the driver's work at exit, which is part of the test.
  if (child == 0) std::exit(run(library, config, body));
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
      << "the child's failures are above; its status is " << status;
  after();
  fs::remove_all(folder());
}

void add_code(const std::string& image, const std::string& backend, const std::string& arch,
              const std::string& program, const std::vector<std::string>& kernels,
              const std::map<std::string, std::string>& names) {
  json headers = json::object();
  const fs::path vocabulary = fs::path(SOURCE_ROOT) / "core/device/opdock";
  for (const fs::directory_entry& entry : fs::directory_iterator(vocabulary)) {
    headers["opdock/" + entry.path().filename().string()] = read_file(entry.path());
  }
  const json source = {
      {"program", "#include \"opdock/device.cuh\"\nusing namespace opdock;\n" + program},
      {"program_name", "test.cu"},
      {"headers", headers},
      {"options", json::array()},
      {"kernels", kernels}};
  const std::string digest = sha256_of(source.dump());
  json entry = {{"backend", backend}, {"arch", arch}, {"source", digest}};
  if (!names.empty()) entry["kernels"] = names;
  std::ofstream(folder() / "code" / ("source-" + digest + ".json")) << source;
  std::ofstream(folder() / "code" / (sha256_of(image) + ".json")) << entry;
}

void* symbol(const char* name) {
  void* const found = dlsym(library_handle, name);
  if (!found) throw std::runtime_error(std::string(name) + " is missing");
  return found;
}

struct Gate::State {
  std::mutex mutex;
  std::condition_variable changed;
  bool open = false;
};

Gate::Gate() {
  static auto& all = *new std::list<State>;
  state_ = &all.emplace_back();
}

void Gate::wait(void* data) {
  State& state = *static_cast<State*>(data);
  std::unique_lock lock(state.mutex);
  state.changed.wait(lock, [&] { return state.open; });
}

void Gate::open() {
  const std::lock_guard lock(state_->mutex);
  state_->open = true;
  state_->changed.notify_all();
}

}  // namespace softgpu_test
