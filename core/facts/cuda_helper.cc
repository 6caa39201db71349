// SPDX-License-Identifier: Apache-2.0
#include "facts/cuda_helper.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/child.h"
#include "base/fd.h"
#include "base/mutex.h"
#include "base/spawn.h"
#include "facts/arch.h"

namespace opdock {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kMaxOutput = 1 << 20;

struct Output {
  std::string text;
  std::string problem;
};

// Reads until the helper closes its end of the pipe, or until the deadline.
void read_all(int fd, Clock::time_point deadline, Output* output) {
  char buffer[4096];
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd waiting{fd, POLLIN, 0};
    const int ready = left > 0 ? poll(&waiting, 1, static_cast<int>(left)) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      output->problem = "opdock-probe did not answer in time: the CUDA driver hangs";
      return;
    }
    const ssize_t count = read(fd, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    output->text.append(buffer, static_cast<size_t>(count));
    if (output->text.size() > kMaxOutput) return;
  }
}

// Starts the helper and sets *answer to the descriptor from which its output is read. On failure
// sets *problem and leaves *answer unchanged.
Child start_helper(const Environment& environment, int* answer, std::string* problem) {
  // A forked child would keep the pipe open, and its closing shows that the helper has ended.
  const NoFork no_fork;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    *problem = std::string("pipe: ") + std::strerror(errno);
    return {};
  }
  Fd read_end(ends[0]);
  const Fd write_end(ends[1]);
  const FdMap files[] = {{write_end.get(), 1}};
  Child child;
  if (const int error = spawn({{environment.helper, environment.cuda}}, files, &child)) {
    *problem = environment.helper + ": " + std::strerror(error);
    return {};
  }
  *answer = read_end.release();
  return child;
}

Output run_helper(const Environment& environment) {
  Output output;
  int answer = -1;
  Child helper = start_helper(environment, &answer, &output.problem);
  if (answer < 0) return output;
  const Fd closed(answer);
  read_all(answer, Clock::now() + environment.helper_deadline, &output);
  // The helper has closed its output or hangs: it will write nothing more.
  helper.signal(SIGKILL);
  helper.reap();
  return output;
}

void use_answer(const nlohmann::json& answer, MachineFacts* facts) {
  if (answer.contains("problem")) facts->cuda_problem = answer["problem"].get<std::string>();
  if (answer.contains("cuda")) {
    const uint32_t cuda = answer["cuda"].get<uint32_t>();
    facts->cuda_driver = Version{cuda / 1000, cuda % 1000 / 10};
  }
  // The driver itself has already applied the visibility variables and its order.
  for (const nlohmann::json& device : answer.at("devices")) {
    Gpu gpu{};
    gpu.backend = Backend::kCuda;
    gpu.index = static_cast<int>(facts->gpus.size());
    gpu.name = device.at("name").get<std::string>();
    gpu.uuid = device.at("uuid").get<std::string>();
    gpu.major = device.at("major").get<int>();
    gpu.minor = device.at("minor").get<int>();
    gpu.memory_bytes = device.at("memory").get<uint64_t>();
    gpu.arch = "sm_" + std::to_string(gpu.major) + std::to_string(gpu.minor);
    gpu.tegra = is_tegra(gpu.major, gpu.minor);
    facts->gpus.push_back(std::move(gpu));
  }
}

}  // namespace

void ask_cuda_helper(const Environment& environment, MachineFacts* facts) {
  if (environment.helper.empty()) {
    facts->cuda_problem += "; opdock-probe, which would ask the driver instead, is not installed";
    return;
  }
  const Output output = run_helper(environment);
  if (!output.problem.empty()) {
    facts->cuda_problem = output.problem;
    return;
  }
  facts->cuda_problem.clear();
  MachineFacts answered = *facts;
  try {
    use_answer(nlohmann::json::parse(output.text), &answered);
    *facts = std::move(answered);
  } catch (const nlohmann::json::exception&) {
    facts->cuda_problem = "opdock-probe ended without an answer: the CUDA driver may have crashed";
  }
}

}  // namespace opdock
