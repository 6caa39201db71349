// Runs print_facts and other programs of the build as children.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/temporary_folder.h"

namespace opdock::test {

using opdock_test::TemporaryFolder;

// Paths in the build tree, found relative to the test program.
std::string print_facts_path();
std::string helper_path();   // opdock-probe
std::string softgpu_nvml();  // libnvidia-ml.so.1
std::string softgpu_cuda();  // libcuda.so.1

// Runs a program with this process's environment and `variables` on top. Returns its standard
// output. Fails the test unless the exit status is 0.
std::string run(const std::vector<std::string>& arguments,
                const std::map<std::string, std::string>& variables);

// A run of print_facts with the stand-ins: NVML and libcuda are present, the helper is installed,
// and there is no KFD, unless `options` say otherwise. `config` is the value of OPDOCK_SOFTGPU.
struct Probe {
  std::string config;
  std::map<std::string, std::string> variables;  // CUDA_VISIBLE_DEVICES, …
  std::map<std::string, std::string> options;    // of print_facts
  std::string record;                            // OPDOCK_SOFTGPU_RECORD, if wanted
};
nlohmann::json facts_of(const Probe& probe);

// Returns the lines of a record.
std::vector<nlohmann::json> read_record(const std::string& path);

}  // namespace opdock::test
