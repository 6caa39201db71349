// Runs programs over the stand-in drivers, each in a process of its own, because a device that
// failed stays failed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace softgpu_test {

using nlohmann::json;

// Returns a child's temporary folder, which is removed at the end. It holds the code folder and the
// files that are written.
std::filesystem::path folder();
// findings() returns the texts in the findings file so far; found() returns whether one of them
// contains `what`; events() returns the record's lines with that event.
std::vector<std::string> findings();
bool found(const std::string& what);
std::vector<json> events(const std::string& event);

// Runs `body` in a child process with `config` (plus "code" and "findings" in folder()) in
// OPDOCK_SOFTGPU and the library of that file name loaded; then runs `after` in the parent, while
// the folder still exists. A failure in the child fails the test.
void in_child(
    const std::string& library, const json& config, const std::function<void()>& body,
    const std::function<void()>& after = [] {});

// Adds the source of an image's kernels to the code folder. `program` follows the vocabulary's
// include; `kernels` are its names. `image` holds the bytes that a driver is given; `arch` is spelt
// as in the code folder's entries. `names` are the kernels' by their names in the image; by default
// the folder does not tell them.
void add_code(const std::string& image, const std::string& backend, const std::string& arch,
              const std::string& program, const std::vector<std::string>& kernels,
              const std::map<std::string, std::string>& names = {});

// Returns a function of the library that in_child() loaded.
void* symbol(const char* name);
template <typename... Arguments>
int call(const char* name, Arguments... arguments) {
  return reinterpret_cast<int (*)(Arguments...)>(symbol(name))(arguments...);
}

// Holds a stream back: wait() is a host function that, called with data(), waits until open() is
// called.
class Gate {
 public:
  Gate();
  ~Gate() { open(); }  // lets the stream go on if a test fails early
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  static void wait(void* data);
  void* data() { return state_; }
  void open();

 private:
  struct State;
  State* state_;  // outlives the gate, because a stream's thread may still be leaving wait()
};

}  // namespace softgpu_test
