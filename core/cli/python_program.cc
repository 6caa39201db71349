// SPDX-License-Identifier: Apache-2.0
#include "python_program.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "commands.h"
#include "fmt/format.h"
#include "own_files.h"

namespace opdock::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kBefore = R"(
import sys
if sys.path[:1] == [""]:
    del sys.path[0]  # what lies in the current folder is no package of this program's
try:
    import opdock
except ImportError as error:
    sys.exit(f"opdock: found no Python package opdock that {sys.executable} can import ({error}), "
             "wanted the one of this command; install it there, or name its Python in $OPDOCK_PYTHON")
)";

// Returns the folder to put on PYTHONPATH for this command's package; empty: the command is not
// part of a package, and Python must know the package itself.
std::string package_folder() {
  const fs::path folder = fs::path(own_path()).parent_path();
  // The command is opdock/bin/opdock in a wheel, and core/cli/opdock next to python/opdock in the
  // build tree.
  for (const char* way : {"../..", "../../python"}) {
    std::error_code error;
    const fs::path place = fs::canonical(folder / way, error);
    if (!error && fs::exists(place / "opdock" / "_author", error)) return place.string();
  }
  return {};
}

}  // namespace

std::string python_program() {
  const char* chosen = std::getenv("OPDOCK_PYTHON");  // the package's own script sets it
  return chosen != nullptr && *chosen != '\0' ? chosen : "python3";
}

void run_python(const std::string& what, const std::string& program,
                std::vector<std::string> arguments) {
  const std::string python = python_program();
  if (const std::string folder = package_folder(); !folder.empty()) {
    const char* others = std::getenv("PYTHONPATH");
    const std::string all = others != nullptr && *others != '\0' ? folder + ":" + others : folder;
    setenv("PYTHONPATH", all.c_str(), 1);
  }
  const std::string text = kBefore + program;
  std::vector<std::string> words = {python, "-c", text};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::fflush(stdout);
  execvp(python.c_str(), argv.data());
  throw Failure{OPDOCK_NOT_FOUND,
                fmt::format("{}: found no Python to run ({}: {}), wanted python3 in PATH or its "
                            "path in $OPDOCK_PYTHON",
                            what, python, std::strerror(errno))};
}

}  // namespace opdock::cli
