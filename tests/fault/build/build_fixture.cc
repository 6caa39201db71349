// SPDX-License-Identifier: Apache-2.0
#include "build_fixture.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>

#include "base/installed.h"

namespace opdock::testing {

namespace fs = std::filesystem;

namespace {

std::string from_environment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr)
    throw std::runtime_error(std::string(name) + " is not set: see meson.build");
  return value;
}

std::string contents(const std::string& path) {
  // Not read with the stream's iterators: they throw if a process in /proc ends during the read.
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

}  // namespace

std::string noop_toml(const std::string& device) {
  return R"toml(name = "noop"
version = "0.1.0"
license = "Apache-2.0"
sources = ["noop.cc"]

[[op]]
schema = "noop(Tensor x) -> ()"
doc = "Does nothing."
devices = [")toml" +
         device + R"toml("]
dtypes = ["float32"]
)toml";
}

std::string good_plugin() {
  return from_environment("OPDOCK_TEST_PLUGIN");
}
std::string other_plugin() {
  return from_environment("OPDOCK_TEST_OTHER_PLUGIN");
}
std::string plain_library() {
  return from_environment("OPDOCK_TEST_LIBRARY");
}

void Watcher::step(std::string_view text, double fraction) {
  steps.emplace_back(text);
  last_fraction = fraction;
}

bool Watcher::cancelled() {
  return stop_at_once || (!stop_when.empty() && fs::exists(stop_when));
}

BuildFixture::BuildFixture() {
  // Variables that a host such as Python or a batch system may have set must not affect the tests.
  for (const char* name :
       {"CC", "CXX", "MESON", "NINJA", "VIRTUAL_ENV", "CONDA_PREFIX", "CUDACXX", "HIPCXX",
        "CUDA_HOME", "CUDA_PATH", "ROCM_PATH", "PKG_CONFIG", "PKG_CONFIG_PATH"}) {
    unsetenv(name);
  }
  use_installed(find_installed(from_environment("OPDOCK_TEST_LIBDIR")));
  std::string pattern = ::testing::TempDir() + "opdock-build-XXXXXX";
  top = mkdtemp(pattern.data());
  fs::create_directories(top + "/bin");
  write("source/plugin.toml", noop_toml());
  write("source/noop.cc", "int nothing;\n");
  setenv("PATH", (top + "/bin").c_str(), 1);
  cache = std::make_unique<PlainCache>(top + "/cache");
  options.trusted = true;
  options.timeout_seconds = 30;
  options.jobs = 2;
  tool("c++", "echo 'c++ 1.2.3'");
  tool("cc", "echo 'cc 1.2.3'");
  tool("meson", "echo setup >> $TOP/setups; mkdir -p \"$4\"");
  tool("ninja",
       "echo build >> $TOP/builds; mkdir -p \"$2/plugins\"; echo '[1/2] one'\n"
       "cp " +
           good_plugin() + " \"$2/plugins/noop.so\"; echo '[2/2] two'");
}

BuildFixture::~BuildFixture() {
  std::error_code error;
  fs::remove_all(top, error);
}

void BuildFixture::tool(const std::string& name, const std::string& body) {
  const std::string path = top + "/bin/" + name;
  std::ofstream(path) << "#!/bin/sh\nTOP='" << top << "'\n" << body << "\n";
  chmod(path.c_str(), 0700);
}

bool BuildFixture::use_real_tools() {
  const char* meson = std::getenv("OPDOCK_TEST_MESON");
  const char* ninja = std::getenv("OPDOCK_TEST_NINJA");
  if (meson == nullptr || ninja == nullptr || *meson == 0 || *ninja == 0) return false;
  setenv("PATH", "/usr/local/bin:/usr/bin:/bin", 1);
  setenv("MESON", meson, 1);
  setenv("NINJA", ninja, 1);
  options.timeout_seconds = 120;
  return true;
}

void BuildFixture::remove_tool(const std::string& name) {
  fs::remove(top + "/bin/" + name);
}

void BuildFixture::write(const std::string& name, const std::string& text) {
  fs::create_directories(fs::path(top + "/" + name).parent_path());
  std::ofstream(top + "/" + name, std::ios::binary | std::ios::trunc) << text;
}

std::string BuildFixture::read(const std::string& name) const {
  return contents(top + "/" + name);
}

size_t BuildFixture::lines(const std::string& name) const {
  const std::string text = read(name);
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

Manifest BuildFixture::manifest_at(const std::string& folder) {
  std::vector<Reason> mistakes;
  std::optional<Manifest> manifest = read_manifest(folder + "/plugin.toml", &mistakes);
  for (const Reason& mistake : mistakes) ADD_FAILURE() << to_text(mistake);
  return manifest.value_or(Manifest());
}

BuildResult BuildFixture::build(Cache* with) {
  reasons.clear();
  return build_plugin(manifest(), options, with != nullptr ? with : cache.get(), &watcher,
                      &reasons);
}

bool BuildFixture::failed_with(Code code) const {
  return std::any_of(reasons.begin(), reasons.end(),
                     [&](const Reason& reason) { return reason.code == code; });
}

std::string BuildFixture::text_of_reasons() const {
  std::string text;
  for (const Reason& reason : reasons) text += to_text(reason) + "\n";
  return text;
}

bool BuildFixture::left_nothing() const {
  for (const fs::directory_entry& entry : fs::directory_iterator(top + "/cache")) {
    if (entry.path().filename().string().starts_with("work")) return false;
  }
  return true;
}

std::vector<std::string> BuildFixture::orphans() const {
  std::vector<std::string> found;
  for (int attempt = 0; attempt < 20; ++attempt) {
    found.clear();
    for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
      const std::string name = entry.path().filename().string();
      if (name.find_first_not_of("0123456789") != name.npos) continue;
      if (std::stol(name) == getpid()) continue;
      const std::string command = contents("/proc/" + name + "/cmdline");
      const std::string text = command + contents("/proc/" + name + "/environ");
      if (text.find(top) != text.npos) found.push_back(name + " " + command);
    }
    if (found.empty()) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return found;
}

}  // namespace opdock::testing
