// Prints the compilers' arguments for a list of architectures, one per line, for tests in Python:
// print_archs cuda|rocm LIST. Exit status 1 and the reason if the list is refused.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <string>

#include "arch/choose.h"
#include "arch/flags.h"

int main(int argc, char** argv) {
  using namespace opdock;
  if (argc != 3) return 2;
  const std::vector<ArchSource> sources = {{"LIST", argv[2]}};
  Reason reason{};
  std::vector<std::string> lines;
  if (std::string(argv[1]) == "cuda") {
    const auto choice = choose_cuda_archs({sources, {}, {}, {}, 0}, &reason);
    if (choice) lines = gencode_arguments(choice->targets);
  } else {
    const auto choice = choose_rocm_archs({sources, {}}, &reason);
    if (choice) lines = offload_arguments(choice->targets);
  }
  for (const std::string& line : lines) std::puts(line.c_str());
  if (lines.empty()) std::puts(to_text(reason).c_str());
  return lines.empty() ? 1 : 0;
}
