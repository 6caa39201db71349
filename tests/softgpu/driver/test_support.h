// Programs over the stand-in drivers, each in a process of its own: a device that failed stays so.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace softgpu_test {

using nlohmann::json;

// A folder of a child's files, removed at the end: the code folder and what is written.
std::filesystem::path folder();
// Texts of the findings file so far; whether one of them says `what`; the lines of the record with
// that event.
std::vector<std::string> findings();
bool found(const std::string& what);
std::vector<json> events(const std::string& event);

// Runs `body` in a child with `config` (and "code", "findings" of folder()) in OPDOCK_SOFTGPU and
// the library of that file name loaded; then `after` in the parent, while the folder is there. The
// child's failures are the test's.
void in_child(
    const std::string& library, const json& config, const std::function<void()>& body,
    const std::function<void()>& after = [] {});

// Kernels for images: `program` follows the vocabulary's include; `kernels` are its names.
// `image` is what a driver is given (its bytes; `arch` as the code folder's entries have it).
void add_code(const std::string& image, const std::string& backend, const std::string& arch,
              const std::string& program, const std::vector<std::string>& kernels);

// A function of the library that in_child() loaded.
void* symbol(const char* name);
template <typename... Arguments>
int call(const char* name, Arguments... arguments) {
  return reinterpret_cast<int (*)(Arguments...)>(symbol(name))(arguments...);
}

// Holds a stream back: its function is a host function that waits, given data(), until open() is
// called.
class Gate {
 public:
  Gate();
  ~Gate() { open(); }  // a test that fails early goes on
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  static void wait(void* data);
  void* data() { return state_; }
  void open();

 private:
  struct State;
  State* state_;  // outlives the gate: a stream's thread may still be on its way out of wait()
};

}  // namespace softgpu_test
