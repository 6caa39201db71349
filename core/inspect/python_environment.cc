// SPDX-License-Identifier: Apache-2.0
#include "inspect/python_environment.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string_view>

#include "base/files.h"
#include "base/installed.h"
#include "build/process.h"
#include "link/files.h"

extern char** environ;

namespace opdock {
namespace {

constexpr std::chrono::seconds kDeadline{20};
constexpr size_t kMaxPythonOutput = 1 << 20;

// Prints the version, the program, then one folder per line. Archives are left out, because what is
// imported from them has no native code.
constexpr const char* kQuestion =
    "import os, sys\n"
    "print('%d.%d.%d' % sys.version_info[:3])\n"
    "print(os.path.realpath(sys.executable))\n"
    "[print(os.path.abspath(p)) for p in sys.path if p.endswith('-packages') and "
    "os.path.isdir(p)]\n";

bool is_folder(const std::string& path) {
  struct stat status{};
  return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

std::string find_python() {
  const char* const environment = secure_getenv("VIRTUAL_ENV");
  if (environment != nullptr && *environment == '/') {
    std::string python = std::string(environment) + "/bin/python";
    if (is_executable(python)) return python;
  }
  const char* const path = secure_getenv("PATH");
  return find_executable(path == nullptr ? "" : path, "python3");
}

}  // namespace

std::optional<PythonEnvironment> active_python(std::string* problem) {
  PythonEnvironment found;
  found.executable = find_python();
  if (found.executable.empty()) {
    *problem =
        "found no python3 in $VIRTUAL_ENV or PATH, wanted the Python whose packages are "
        "meant; activate its environment, or name its folder";
    return std::nullopt;
  }
  ProcessJob job;
  job.arguments = {found.executable, "-I", "-c", kQuestion};
  for (char** variable = environ; *variable != nullptr; ++variable) {
    job.environment.emplace_back(*variable);
  }
  job.deadline = std::chrono::steady_clock::now() + kDeadline;
  std::string output;
  const ProcessEnd end =
      run_and_read(installed().program("opdock-guard"), std::move(job), kMaxPythonOutput, &output);
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < output.size();) {
    const size_t stop = std::min(output.find('\n', begin), output.size());
    lines.push_back(output.substr(begin, stop - begin));
    begin = stop + 1;
  }
  if (!end.ok() || lines.size() < 2) {
    *problem = found.executable + " " + end.text() +
               " when it was asked for its folders, wanted an answer; repair it, or name the "
               "folder of its packages";
    return std::nullopt;
  }
  found.version = lines.front();
  found.executable = lines[1];  // the program found above may be a script that starts it
  found.sites.assign(lines.begin() + 2, lines.end());
  return found;
}

std::vector<std::string> sites_of_venv(const std::string& folder) {
  std::vector<std::string> sites;
  for (const char* lib : {"lib", "lib64"}) {
    std::vector<std::string> names;
    if (list_folder(folder + "/" + lib, &names) != 0) continue;
    for (const std::string& name : names) {
      if (!name.starts_with("python") && !name.starts_with("pypy")) continue;
      const std::string site = folder + "/" + lib + "/" + name + "/site-packages";
      if (is_folder(site)) sites.push_back(site);
    }
  }
  return sites;
}

}  // namespace opdock
