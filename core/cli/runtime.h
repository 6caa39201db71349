// Wraps the host's API for the command.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "nlohmann/json.hpp"
#include "opdock/opdock.h"
#include "usage.h"

namespace opdock::cli {

using Report = nlohmann::ordered_json;

struct GpuMachine;

// A failed call of opdock.h: its status and text.
struct Failure {
  opdock_status status;
  std::string text;
};

// Returns the options of every subcommand; plugin_path, which must live as long as they do, may be
// empty.
opdock_options default_options(const std::string& plugin_path);

// Creates the runtime on construction, destroys it at the end. Throws Failure.
class Runtime {
 public:
  explicit Runtime(const std::string& plugin_path);
  explicit Runtime(const opdock_options& options);
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  opdock_runtime* get() const { return runtime_; }

 private:
  opdock_runtime* runtime_ = nullptr;
};

// Makes the runtime judge for that machine, unless all its members are empty.
void describe(const Runtime& runtime, const GpuMachine& machine);
// Gives the GPUs in a report on a described machine the names that the user gave them, in place of
// "cuda:0".
void name_gpus(const GpuMachine& machine, Report* report);

// Calls a function of opdock.h that takes an error buffer; throws Failure unless it returns OK.
void check(const std::function<opdock_status(char* error, uint32_t error_size)>& call);

// Calls a function that writes a JSON text, and parses the text. Throws Failure as check() does.
Report read_report(
    const std::function<opdock_status(char** out, char* error, uint32_t error_size)>& call);

}  // namespace opdock::cli
