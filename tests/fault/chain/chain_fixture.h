// A test fixture with a folder of plugins, a cache, a PATH of scripts that replace the build's
// tools, and runtimes that use them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "folder.h"
#include "nlohmann/json.hpp"
#include "opdock/opdock.h"

namespace opdock::testing {

using Json = nlohmann::json;

struct RuntimeCloser {
  void operator()(opdock_runtime* runtime) const { opdock_runtime_destroy(runtime); }
};
using RuntimePtr = std::unique_ptr<opdock_runtime, RuntimeCloser>;

// The result of resolving or calling an op.
struct Outcome {
  opdock_status status = OPDOCK_OK;
  std::string text;
  Json reasons;  // from opdock_take_reasons_json
  bool has(const std::string& code) const;
};

// Plays the host program: its policies, hooks and references.
struct Program {
  const char* build = nullptr;
  const char* jit = nullptr;
  const char* fallback = nullptr;
  std::function<bool()> cancelled;
  // number of threads that have reported the begin of a wait but not its end
  std::atomic<int> waits{0};
  std::mutex telling;  // guards `told`, because several builds may run at once
  std::vector<std::string> told;
  // Called by the hooks in addition. Without on_log there is no log hook.
  std::function<void(const std::string& text)> on_log, on_progress;
  // The references: the ops that have one with the status of opening it, and the status of running
  // one.
  bool has_runner = false;
  std::map<std::string, opdock_status> references;
  opdock_status run_status = OPDOCK_OK;
  std::vector<Json> records;  // the records that open_reference received
  std::vector<std::string> files;
};

// By default the scripts make a good build: the compilers print their versions, meson creates a
// folder, and ninja copies a case plugin there ($TOP/made names it) and records that it ran.
class ChainFixture : public ::testing::Test {
 protected:
  ChainFixture();
  ~ChainFixture() override;

  void tool(const std::string& name, const std::string& body);
  void remove_tool(const std::string& name);
  // Adds a source plugin in plugins/<name> whose build copies the case plugin `name`.
  std::string add_source(const std::string& name, const std::string& version = "1.0",
                         const std::string& extra = "", const std::string& folder = "");
  size_t builds() const;  // how often ninja ran
  std::string path(const std::string& name = "") const { return top_.path(name); }

  RuntimePtr runtime(Program* program = nullptr, const std::string& plugin_path = "");
  static Outcome resolve(opdock_runtime* runtime, const std::string& op,
                         opdock_device device = {OPDOCK_CPU, 0});
  // Resolves and calls `op`, which takes and returns one float32 tensor.
  static Outcome call(opdock_runtime* runtime, const std::string& op);
  static Json explain(opdock_runtime* runtime, const std::string& name);
  // Returns the named step of the first device in an explanation.
  static Json step(const Json& explanation, const std::string& name);
  static std::string outcome(const Json& explanation, const std::string& name) {
    return step(explanation, name).at("outcome").get<std::string>();
  }

  Folder top_;
};

}  // namespace opdock::testing
