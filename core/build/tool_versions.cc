// SPDX-License-Identifier: Apache-2.0
#include "build/tool_versions.h"

#include <sys/auxv.h>

#include <filesystem>
#include <map>
#include <optional>
#include <sstream>

#include "arch/flags.h"
#include "arch/nvcc_toolkit.h"
#include "arch/rocm_list.h"
#include "base/files.h"
#include "base/fork_aware_lock.h"
#include "base/mutex.h"
#include "build/process.h"

namespace opdock {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxAnswer = 1 << 20;

ProcessEnd run_tool(const BuildTools& tools, std::vector<std::string> command,
                    std::string* answer) {
  ProcessJob job;
  job.arguments = std::move(command);
  job.environment = build_environment(tools, "/tmp");
  job.deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  return run_and_read(tools.guard, job, kMaxAnswer, answer);
}

bool can_start(const BuildTools& tools, const std::vector<std::string>& command) {
  return !command.empty() && !command.front().empty() && !tools.guard.empty() &&
         getauxval(AT_SECURE) == 0;
}

// Returns the program's output; empty if the program fails.
std::string start(const BuildTools& tools, std::vector<std::string> command) {
  std::string answer;
  if (!can_start(tools, command)) return answer;
  return run_tool(tools, std::move(command), &answer).ok() ? answer : std::string();
}

// Remembered answers of programs. A thread holds the lock while it asks, because the others want
// the same answers.
struct Answers {
  ForkAwareLock lock;  // guards the members below
  std::map<std::vector<std::string>, std::string> all;
};
Answers& answers = *new Answers;

std::string ask(const BuildTools& tools, std::vector<std::string> command) {
  // The file's identity is in the key, so that a program that was replaced is asked again.
  std::vector<std::string> key = command;
  if (!key.empty()) key.push_back(file_identity(key.front()));
  const ForkAwareGuard guard(&answers.lock);
  const auto known = answers.all.find(key);
  if (known != answers.all.end()) return known->second;
  std::string answer = start(tools, std::move(command));
  const NoFork no_fork;
  return answers.all[key] = std::move(answer);
}

// Returns the first number with a point in it, from `key` on: "12.2.0" of "g++ (Debian 12.2.0-14)
// 12.2.0".
Version version_in(const std::string& text, const std::string& key = {}) {
  size_t at = text.find(key);
  while (at != text.npos && (at = text.find_first_of("0123456789", at)) != text.npos) {
    const size_t end = std::min(text.find_first_not_of("0123456789.", at), text.size());
    std::string number = text.substr(at, end - at);
    while (number.ends_with('.')) number.pop_back();
    if (number.find('.') != number.npos) return Version::parse(number).value_or(Version());
    at = end;
  }
  return {};
}

}  // namespace

CompilerVersion ask_compiler(const BuildTools& tools) {
  if (tools.cpp.empty()) return {};
  std::vector<std::string> command = tools.cpp;
  command.push_back("--version");
  const std::string answer = ask(tools, command);
  if (answer.empty()) return {};
  if (answer.find("clang") != answer.npos) return {"clang++", version_in(answer, "version")};
  // In the answer to --version, a distribution puts its own version in parentheses before GCC's.
  command.back() = "-dumpfullversion";
  return {"g++", version_in(ask(tools, command))};
}

NvccFacts ask_nvcc(const BuildTools& tools) {
  NvccFacts facts;
  if (tools.nvcc.empty()) return facts;
  facts.version = version_in(ask(tools, {tools.nvcc, "--version"}), ", V");
  facts.archs = archs_of_nvcc(Version{facts.version.major(), facts.version.minor()},
                              ask(tools, {tools.nvcc, "--help"}));
  facts.toolkit = toolkit_of(ask(tools, {tools.nvcc, "--dryrun", "-c", "-x", "cu", "/dev/null"}));
  const fs::path header =
      (fs::path(facts.toolkit) / "include/crt/host_config.h").lexically_normal();
  if (!facts.toolkit.empty())
    facts.limits = read_host_limits(read_file(header).value_or(""), header.string());
  if (!facts.limits) facts.limits = documented_host_limits(facts.version);
  return facts;
}

Version ask_version(const BuildTools& tools, const std::string& program) {
  return program.empty() ? Version() : version_in(ask(tools, {program, "--version"}));
}

Version ask_hipcc(const BuildTools& tools) {
  if (tools.hipcc.empty()) return {};
  return version_in(ask(tools, {tools.hipcc, "--version"}), "HIP version");
}

std::vector<NvrtcKnowledge> ask_nvrtcs(const BuildTools& tools) {
  std::vector<NvrtcKnowledge> all;
  std::vector<std::string> command = {tools.pack, "--known-archs"};
  for (const std::string& folder : tools.nvrtc_folders) {
    command.push_back("--nvrtc-search");
    command.push_back(folder);
  }
  std::istringstream lines(start(tools, std::move(command)));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name, version;
    if (!(words >> name >> version) || name != "NVRTC") continue;
    NvrtcKnowledge one;
    one.version = Version::parse(version).value_or(Version());
    for (int number = 0; words >> number;) one.numbers.push_back(number);
    if (!one.version.empty()) all.push_back(std::move(one));
  }
  return all;
}

std::string ask_package(const BuildTools& tools, const std::string& package) {
  const std::vector<std::string> command = {tools.pkg_config, "--exists", "--print-errors",
                                            package};
  std::string answer;
  if (!can_start(tools, command)) return {};
  const ProcessEnd end = run_tool(tools, command, &answer);
  if (end.ok()) return {};
  answer.erase(std::min(answer.find('\n'), answer.size()));
  return answer.empty() ? "pkg-config " + end.text() : answer;
}

bool has_header(const BuildTools& tools, const std::string& header) {
  std::vector<std::string> command = tools.cpp;
  for (const char* word : {"-E", "-x", "c++", "-o", "/dev/null", "-include"})
    command.push_back(word);
  command.push_back(header);
  command.push_back("/dev/null");
  std::string ignored;
  return !can_start(tools, command) || run_tool(tools, std::move(command), &ignored).ok();
}

std::vector<std::string> not_linked(const BuildTools& tools,
                                    const std::vector<std::string>& libraries) {
  // Links no object, so that nothing is taken from the libraries: the only thing that shows is
  // whether they exist.
  const auto is_linked = [&](const std::vector<std::string>& names) {
    std::vector<std::string> command = tools.cpp;
    for (const char* word : {"-shared", "-nostdlib", "-o", "/dev/null"}) command.push_back(word);
    for (const std::string& name : names) command.push_back("-l" + name);
    std::string ignored;
    return !can_start(tools, command) || run_tool(tools, std::move(command), &ignored).ok();
  };
  if (libraries.empty() || tools.cpp.empty() || is_linked(libraries)) return {};
  std::vector<std::string> missing;
  for (const std::string& name : libraries)
    if (!is_linked({name})) missing.push_back(name);
  return missing;
}

std::vector<std::string> unknown_to_hipcc(const BuildTools& tools, const std::string& archs) {
  Reason ignored{};
  const std::optional<RocmList> list = parse_rocm_list(archs, "", &ignored);
  std::vector<std::string> unknown;
  if (!list || list->targets.empty()) return unknown;
  std::vector<std::string> command = {tools.hipcc};
  for (std::string& argument : offload_arguments(list->targets))
    command.push_back(std::move(argument));
  // Nothing is compiled: hipcc checks the list of targets first.
  for (const char* word : {"-nogpulib", "-nogpuinc", "-fsyntax-only", "-x", "hip", "/dev/null"})
    command.push_back(word);
  std::string answer;
  if (!can_start(tools, command) || run_tool(tools, command, &answer).ok()) return unknown;
  for (const std::string& target : list->targets) {
    for (const std::string& words :
         {"invalid target ID '" + target + "'", "unsupported HIP gpu architecture: " + target}) {
      if (answer.find(words) == answer.npos) continue;
      unknown.push_back(target);
      break;
    }
  }
  return unknown;
}

}  // namespace opdock
