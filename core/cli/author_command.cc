// opdock test, bench and wheel: runs these commands, which are written in Python, in the package's
// module opdock._author.commands.
// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "fmt/format.h"
#include "own_files.h"
#include "python_program.h"

namespace opdock::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kProgram = R"(
from opdock._author import commands
sys.exit(commands.main(sys.argv[1:]))
)";

// Returns what opdock/_author/soft.py needs to know, as JSON.
std::string soft_options(const AuthorCommand& command) {
  const Installed own = own_files();
  const std::string program = own.program("opdock-soft-code");
  std::error_code error;
  if (program.empty() && fs::exists(fs::path(own.root) / "build.ninja", error)) {
    throw Failure{OPDOCK_NOT_FOUND,
                  fmt::format("test: found no software GPU in the build folder {0}, wanted "
                              "libexec/opdock/opdock-soft-code; run `./dev opdock test "
                              "--device=soft …`, which builds it, or `ninja -C {0} softgpu`",
                              own.root)};
  }
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
  std::vector<std::string> words = {own_path()};
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
  if (command.what == "wheel") {
    words.insert(words.end(),
                 {command.out.empty() ? "." : command.out, command.cuda_archs, command.hip_archs});
  }
  words.insert(words.end(), command.arguments.begin(), command.arguments.end());
  run_python(command.what, kProgram, std::move(words));
}

}  // namespace opdock::cli
