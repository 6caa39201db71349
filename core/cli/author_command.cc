// opdock test, opdock bench: both are written in Python, in the package's module
// opdock._author.commands.
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "fmt/format.h"
#include "own_files.h"

namespace opdock::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kProgram = R"(
import sys
try:
    from opdock._author import commands
except ImportError as error:
    sys.exit(f"opdock: found no Python package opdock that {sys.executable} can import ({error}), "
             "wanted the one of this command; install it there, or name its Python in $OPDOCK_PYTHON")
sys.exit(commands.main(sys.argv[1:]))
)";

// The folder to put on PYTHONPATH for this command's package; empty: it is no part of one, and
// Python must know the package itself.
std::string package_folder() {
  const fs::path folder = fs::path(own_path()).parent_path();
  // In a wheel opdock/bin/opdock, in the build tree core/cli/opdock beside python/opdock.
  for (const char* way : {"../..", "../../python"}) {
    std::error_code error;
    const fs::path place = fs::canonical(folder / way, error);
    if (!error && fs::exists(place / "opdock" / "_author", error)) return place.string();
  }
  return {};
}

// What opdock/_author/soft.py wants to know, as JSON.
std::string soft_options(const AuthorCommand& command) {
  const std::string program = own_files().program("opdock-soft-code");
  if (program.empty())
    throw Failure{
        OPDOCK_NOT_FOUND,
        "test: found no software GPU where this Opdock is installed, wanted "
        "libexec/opdock/opdock-soft-code; install Opdock by `meson install`, or by `pip install . "
        "--config-settings=setup-args=-Dsoftgpu=true`"};
  const nlohmann::json options = {
      {"code", program},      {"drivers", fs::path(program).parent_path() / "softgpu"},
      {"arch", command.arch}, {"warp", command.warp},
      {"seed", command.seed}, {"counters", command.counters}};
  return options.dump();
}

}  // namespace

std::string own_path() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).string();
}

Installed own_files() {
  return find_installed(fs::path(own_path()).parent_path().string());
}

int author_command(const AuthorCommand& command) {
  const char* chosen = std::getenv("OPDOCK_PYTHON");  // the package's own script sets it
  const std::string python = chosen != nullptr && *chosen != '\0' ? chosen : "python3";
  if (const std::string folder = package_folder(); !folder.empty()) {
    const char* others = std::getenv("PYTHONPATH");
    const std::string all = others != nullptr && *others != '\0' ? folder + ":" + others : folder;
    setenv("PYTHONPATH", all.c_str(), 1);
  }
  std::vector<std::string> words = {python, "-c", kProgram, own_path()};
  if (command.tune) {
    words.insert(words.end(), {"tune", command.device});
  } else {
    words.push_back(command.forget ? "forget" : command.what);
  }
  const bool has_path = !command.path.empty() || !(command.tune || command.forget);
  if (has_path) words.push_back(command.path);
  if (command.what == "test" && command.device == "soft") {
    words.push_back("--soft=" + soft_options(command));
  }
  words.insert(words.end(), command.arguments.begin(), command.arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::fflush(stdout);
  execvp(python.c_str(), argv.data());
  throw Failure{OPDOCK_NOT_FOUND,
                fmt::format("{}: found no Python to run ({}: {}), wanted python3 in PATH or its "
                            "path in $OPDOCK_PYTHON",
                            command.what, python, std::strerror(errno))};
}

}  // namespace opdock::cli
