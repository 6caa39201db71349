// Runs the program opdock-pack on a small plugin.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "support/temporary_folder.h"

namespace opdock::pack {

using opdock_test::contents;
using opdock_test::TemporaryFolder;

struct Outcome {
  int status;
  std::string text;  // stdout and stderr
};

// Runs the program in an environment that hides this machine's Python and CUDA.
inline Outcome pack(const TemporaryFolder& folder, const std::string& arguments,
                    const std::string& variables = "") {
  const std::string log = (folder.path() / "log").string();
  const std::string command = "env -i HOME=/nonexistent PATH=/nonexistent " + variables +
                              " " OPDOCK_PACK " " + arguments + " >" + log + " 2>&1";
  const int raw = std::system(command.c_str());
  return {WIFEXITED(raw) ? WEXITSTATUS(raw) : -1, contents(log)};
}

inline void write_plugin(const TemporaryFolder& folder) {
  folder.write("p/plugin.toml", R"(name = "p"
version = "1.2"
license = "MIT"
sources = ["p.cc"]
[[op]]
schema = "f(Tensor x) -> Tensor"
doc = "f"
shape = ["like x"]
devices = ["cuda"]
dtypes = ["float32"]
[device]
sources = ["p.cuh"]
kernels = ["f"]
)");
  folder.write("p/p.cc", "int host;");
  folder.write("p/p.cuh", "#include \"opdock/device.cuh\"\nOPDOCK_KERNEL(32) f() {}\n");
  folder.write("vocabulary/opdock/device.cuh",
               "#pragma once\n#define OPDOCK_KERNEL(n) "
               "__global__ void\n");
  // Puts the fake NVRTC where the loader would look, under the name that wheels use.
  std::filesystem::create_directories(folder.path() / "nvrtc");
  std::filesystem::copy_file(FAKE_NVRTC_12, folder.path() / "nvrtc/libnvrtc.so.12");
}

}  // namespace opdock::pack
