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

// Paths in the build tree, found from the test program's own.
std::string print_facts_path();
std::string helper_path();   // opdock-probe
std::string softgpu_nvml();  // libnvidia-ml.so.1
std::string softgpu_cuda();  // libcuda.so.1

// The program's standard output; its variables are this process's with `variables` over them. Fails
// the test if it does not end with 0.
std::string run(const std::vector<std::string>& arguments,
                const std::map<std::string, std::string>& variables);

// What print_facts makes of the stand-ins: NVML and libcuda present, the helper installed, no KFD,
// unless `options` say otherwise. `config` is OPDOCK_SOFTGPU's.
struct Probe {
  std::string config;
  std::map<std::string, std::string> variables;  // CUDA_VISIBLE_DEVICES, …
  std::map<std::string, std::string> options;    // print_facts'
  std::string record;                            // OPDOCK_SOFTGPU_RECORD, if wanted
};
nlohmann::json facts_of(const Probe& probe);

// The lines of a record.
std::vector<nlohmann::json> read_record(const std::string& path);

}  // namespace opdock::test
