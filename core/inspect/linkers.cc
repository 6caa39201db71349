// SPDX-License-Identifier: Apache-2.0
#include "inspect/linkers.h"

#include <algorithm>
#include <mutex>

namespace opdock {
namespace {

bool wants_python(const LinkFacts& facts) {
  return std::any_of(facts.problems.begin(), facts.problems.end(), [](const LinkProblem& problem) {
    return problem.kind == LinkProblem::Kind::kSymbol && is_python_symbol(problem.name);
  });
}

}  // namespace

Linkers::Linkers(const JudgedMachine& around, const Files& files,
                 std::map<std::string, std::string> elsewhere, bool has_absent_requirements,
                 PythonNeed python)
    : around_(around),
      files_(files),
      elsewhere_(std::move(elsewhere)),
      has_absent_requirements_(has_absent_requirements),
      python_(std::move(python)) {}

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
  process.has_absent_requirements = has_absent_requirements_;
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

LinkFacts Linkers::link_in_python(const FileFacts& file) {
  PythonNeed need = python_of_path(file.path.substr(file.path.rfind('/') + 1));
  if (need == PythonNeed()) need = python_;
  if (need == PythonNeed()) need = python_of_path(file.path);
  std::string python;
  {
    const std::lock_guard lock(mutex_);
    const auto known = pythons_.find(need);
    python = known != pythons_.end()
                 ? known->second
                 : pythons_[need] = find_python(need, around_.python).value_or("");
  }
  LinkFacts facts = in_program(python).link(file.library, file.path);
  // If no Python version is named, another Python may have what this one lacks, so the program is
  // left open.
  if (need.version.empty() && wants_python(facts)) facts.program.clear();
  facts.wanted_python = need.text();
  return facts;
}

LinkFacts Linkers::link(const FileFacts& file) {
  if (file.library == nullptr) return {};
  if (opdock::wants_python(*file.library)) return link_in_python(file);
  LinkFacts facts = in_program("").link(file.library, file.path);
  return wants_python(facts) ? link_in_python(file) : facts;
}

}  // namespace opdock
