// SPDX-License-Identifier: Apache-2.0
#include "inspect/linkers.h"

#include <algorithm>
#include <mutex>

#include "link/python.h"

namespace opdock {
namespace {

bool wants_python(const LinkFacts& facts) {
  return std::any_of(facts.problems.begin(), facts.problems.end(), [](const LinkProblem& problem) {
    return problem.kind == LinkProblem::Kind::kSymbol && is_python_symbol(problem.name);
  });
}

}  // namespace

Linkers::Linkers(const Surroundings& around, const Files& files,
                 std::map<std::string, std::string> elsewhere, bool others_bring)
    : around_(around),
      files_(files),
      elsewhere_(std::move(elsewhere)),
      others_bring_(others_bring) {}

ProcessModel Linkers::model_of(const std::string& program) const {
  const MachineFacts& machine = around_.machine;
  ProcessModel process;
  if (around_.libraries_described) {
    process = described_process(machine.elf_machine, machine.cpu_level, machine.symbol_versions);
  } else if (!program.empty()) {
    process =
        started_program(program, machine.cpu_level).value_or(fresh_process(machine.cpu_level));
  } else {
    process = fresh_process(machine.cpu_level);
  }
  process.others_bring = others_bring_;
  if (around_.described && machine.cuda_driver) {
    for (const char* name : {"libcuda.so.1", "libnvidia-ml.so.1"}) assume_library(name, &process);
  }
  return process;
}

Linker& Linkers::in_program(const std::string& program) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Linker>& linker = linkers_[program];
  if (linker == nullptr) {
    linker = std::make_unique<Linker>(model_of(program), &files_, elsewhere_);
  }
  return *linker;
}

std::string Linkers::python_for(const FileFacts& file) {
  const std::string version = python_version_of(file.path);
  const std::lock_guard lock(mutex_);
  const auto known = pythons_.find(version);
  if (known != pythons_.end()) return known->second;
  return pythons_[version] = find_python(version, around_.python).value_or("");
}

LinkFacts Linkers::link(const FileFacts& file) {
  if (file.library == nullptr) return {};
  const auto in = [&](const std::string& program) {
    return in_program(program).link(file.library, file.path);
  };
  if (opdock::wants_python(*file.library)) return in(python_for(file));
  LinkFacts facts = in("");
  if (!wants_python(facts)) return facts;
  const std::string python = python_for(file);
  return python.empty() ? facts : in(python);
}

}  // namespace opdock
