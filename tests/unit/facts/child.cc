// SPDX-License-Identifier: Apache-2.0
#include "child.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

extern char** environ;

namespace opdock::test {
namespace {

namespace fs = std::filesystem;

fs::path own_folder() {
  return fs::canonical("/proc/self/exe").parent_path();
}

}  // namespace

std::string print_facts_path() {
  return own_folder() / "print_facts";
}
std::string helper_path() {
  return own_folder() / "../../../core/facts/opdock-probe";
}
std::string softgpu_nvml() {
  return own_folder() / "../../../core/softgpu/driver/libnvidia-ml.so.1";
}
std::string softgpu_cuda() {
  return own_folder() / "../../../core/softgpu/driver/libcuda.so.1";
}

std::string run(const std::vector<std::string>& arguments,
                const std::map<std::string, std::string>& variables) {
  std::vector<std::string> environment;
  for (char** at = environ; *at; ++at) {
    const std::string entry = *at;
    if (variables.count(entry.substr(0, entry.find('='))) == 0) environment.push_back(entry);
  }
  for (const auto& [name, value] : variables) environment.push_back(name + "=" + value);
  std::vector<char*> argv, envp;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  for (const std::string& entry : environment) envp.push_back(const_cast<char*>(entry.c_str()));
  argv.push_back(nullptr);
  envp.push_back(nullptr);

  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  pid_t child = 0;
  const int error = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string output;
  char buffer[4096];
  for (ssize_t count; (count = read(ends[0], buffer, sizeof buffer)) > 0;) {
    output.append(buffer, static_cast<size_t>(count));
  }
  close(ends[0]);
  EXPECT_EQ(error, 0) << arguments[0];
  if (error != 0) return {};
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << arguments[0] << "\n" << output;
  return output;
}

nlohmann::json facts_of(const Probe& probe) {
  std::map<std::string, std::string> options = {
      {"nvml", softgpu_nvml()},  {"cuda", softgpu_cuda()}, {"helper", helper_path()},
      {"sysfs", "/nonexistent"}, {"dev", "/nonexistent"},  {"opt", "/nonexistent"}};
  for (const auto& [name, value] : probe.options) options[name] = value;
  std::vector<std::string> arguments = {print_facts_path()};
  for (const auto& [name, value] : options) {
    arguments.push_back(name);
    arguments.push_back(value);
  }
  std::map<std::string, std::string> variables = probe.variables;
  variables["OPDOCK_SOFTGPU"] = probe.config;
  variables["OPDOCK_SOFTGPU_RECORD"] = probe.record;
  // This machine's own variables must not leak in. An unset variable differs from an empty one, so
  // those that the test does not set are removed.
  std::vector<std::string> command = {"env"};
  for (const char* name : {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "ROCR_VISIBLE_DEVICES",
                           "HIP_VISIBLE_DEVICES", "HSA_XNACK"}) {
    if (variables.count(name) != 0) continue;
    command.insert(command.end(), {"-u", name});
  }
  command.insert(command.end(), arguments.begin(), arguments.end());
  const std::string output = run(command, variables);
  const nlohmann::json facts = nlohmann::json::parse(output, nullptr, false);
  EXPECT_TRUE(facts.is_object()) << output;
  return facts;
}

std::vector<nlohmann::json> read_record(const std::string& path) {
  std::vector<nlohmann::json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

}  // namespace opdock::test
