// Probes the machine that its arguments describe and prints the facts as one JSON object. Tests run
// it as a child, because stand-ins are configured by the environment variables of their process.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "facts/probes.h"

namespace {

using nlohmann::json;
using opdock::MachineFacts;

json describe(const MachineFacts& facts) {
  json gpus = json::array();
  for (const opdock::Gpu& gpu : facts.gpus) {
    gpus.push_back({{"backend", std::string(to_text(gpu.backend))},
                    {"index", gpu.index},
                    {"name", gpu.name},
                    {"uuid", gpu.uuid},
                    {"arch", gpu.arch},
                    {"major", gpu.major},
                    {"minor", gpu.minor},
                    {"tegra", gpu.tegra},
                    {"memory", gpu.memory_bytes}});
  }
  json versions = json::object();
  for (const auto& [prefix, version] : facts.symbol_versions) versions[prefix] = version.text();
  // Whether libstdc++ is in this process; the test of the static program must know that it is not.
  const bool has_libstdcxx = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD) != nullptr;
  return {{"symbol_versions", versions},
          {"has_libstdcxx", has_libstdcxx},
          {"cuda", facts.cuda_driver ? facts.cuda_driver->text() : ""},
          {"release", facts.cuda_driver_release},
          {"cuda_problem", facts.cuda_problem},
          {"rocm", facts.rocm ? facts.rocm->text() : ""},
          {"rocm_problem", facts.rocm_problem},
          {"uncertain", facts.gpu_order_uncertain},
          {"gpus", gpus},
          {"pid", getpid()}};
}

// Returns what cuInit returns in a child forked after the probe: 0 if the probe left CUDA usable.
int init_in_child(const std::string& library) {
  const pid_t child = fork();
  if (child == 0) {
    void* const cuda = dlopen(library.c_str(), RTLD_NOW);
    auto* const init = reinterpret_cast<int (*)(unsigned)>(dlsym(cuda, "cuInit"));
    _exit(init(0) & 255);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Forks while another thread is inside NVML, which never returns; `record` shows when the thread is
// there. The child prints what it finds. Returns the child's wait status.
int fork_within(const opdock::Environment& environment, const std::string& record) {
  std::thread([&] { opdock::probe_machine(environment); }).detach();
  while (std::ifstream(record).peek() == EOF) usleep(1000);
  usleep(10000);
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);
    std::printf("%s", describe(opdock::probe_machine(environment)).dump().c_str());
    std::fflush(stdout);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  opdock::Environment environment = opdock::current_environment();
  bool init_before = false, fork_after = false;
  std::string record;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string option = argv[i], value = argv[i + 1];
    if (option == "nvml") environment.nvml = value;
    if (option == "cuda") environment.cuda = value;
    if (option == "helper") environment.helper = value;
    if (option == "deadline") {
      environment.helper_deadline = std::chrono::milliseconds(std::stoi(value));
    }
    if (option == "sysfs") environment.sysfs = value;
    if (option == "dev") environment.dev = value;
    if (option == "opt") environment.opt = value;
    if (option == "fork") fork_after = true;
    if (option == "fork_within") record = value;
    // initialises CUDA, which a probe must never do, to prove that the test notices it
    if (option == "init") init_before = true;
  }
  if (init_before) {
    void* const cuda = dlopen(environment.cuda.c_str(), RTLD_NOW);
    reinterpret_cast<int (*)(unsigned)>(dlsym(cuda, "cuInit"))(0);
  }
  if (!record.empty()) _exit(fork_within(environment, record));
  json answer = describe(opdock::probe_machine(environment));
  if (fork_after) answer["child"] = init_in_child(environment.cuda);
  std::printf("%s", answer.dump().c_str());
}
