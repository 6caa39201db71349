// SPDX-License-Identifier: Apache-2.0
#include "build/steps.h"

#include "build/limits.h"
#include "build/log.h"
#include "build/process.h"
#include "build/step_counter.h"
#include "build/triage.h"

namespace opdock {
namespace {

// Returns "12.1" for nvcc's list whose last line is "compute_121"; empty if nvcc fails.
std::string newest_arch(const BuildTools& tools) {
  ProcessJob job;
  job.arguments = {tools.nvcc, "--list-gpu-arch"};
  job.environment = build_environment(tools, "/tmp");
  job.deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  std::string text;
  if (!run_and_read(tools.guard, job, 4096, &text).ok()) return {};
  const size_t end = text.find_last_of("0123456789");
  const size_t begin = text.rfind('_', end);
  if (begin == text.npos || end == text.npos || end < begin + 2) return {};
  return text.substr(begin + 1, end - begin - 1) + "." + text[end];
}

bool run_step(const StepJob& build, FailedStep::Phase phase, std::vector<std::string> command,
              StepCounter* steps, std::string* whole_log, std::vector<Reason>* why) {
  BuildLog log;
  ProcessJob job;
  job.arguments = std::move(command);
  job.environment = build_environment(build.tools, build.folders.temporary);
  job.folder = build.folders.all;
  job.deadline = build.deadline;
  job.progress = build.progress;
  job.on_output = [&](std::string_view piece) {
    log.add(piece);
    if (steps != nullptr) steps->add(piece);
  };
  FailedStep step;
  step.end = run_process(build.tools.guard, job);
  const std::string text = log.text();
  *whole_log += "$";
  for (const std::string& word : job.arguments) *whole_log += " " + word;
  *whole_log += "\n" + text;
  if (step.end.ok()) return true;
  *whole_log += "\n" + job.arguments.front() + " " + step.end.text() + "\n";
  step.phase = phase;
  step.log = text;
  step.plugin_folder = build.manifest.folder().string();
  step.copied_folder = build.folders.plugin;
  step.archs = build.options.cuda_archs +
               (build.options.hip_archs.empty() ? "" : " " + build.options.hip_archs);
  step.limits = own_limits();
  for (const OpDecl& op : build.manifest.ops) step.ops.push_back(op.name);
  if (build.languages.cuda && step.end.kind == ProcessEnd::kExit)
    step.newest_arch = newest_arch(build.tools);
  why->push_back(triage(step));
  // On a full disk Meson reports a compiler that does not work, and some parts of compilers only
  // say that they cannot write.
  const bool is_vague = phase == FailedStep::kSetup || why->back().code == Code::kBuildFailed;
  if (is_vague && step.end.kind == ProcessEnd::kExit) {
    if (std::optional<Reason> full = full_disk(build.folders.all, why->back().found))
      why->back() = *std::move(full);
  }
  return false;
}

}  // namespace

bool run_steps(const StepJob& job, std::string* log, std::vector<Reason>* why) {
  StepCounter steps(job.manifest.name, job.progress);
  const int jobs = job.options.jobs > 0 ? job.options.jobs : default_jobs(job.languages);
  return run_step(job, FailedStep::kSetup, setup_command(job.tools), nullptr, log, why) &&
         run_step(job, FailedStep::kCompile, compile_command(job.tools, jobs), &steps, log, why);
}

}  // namespace opdock
