// SPDX-License-Identifier: Apache-2.0
#include "facts/torch.h"

#include <link.h>

#include <filesystem>
#include <fstream>
#include <string_view>

#include "base/loaded_objects.h"
#include "facts/tools.h"

namespace opdock {
namespace {

// Sets the package's folder from the libtorch in this process: …/torch for
// …/torch/lib/libtorch_cpu.so.
int visit_torch(dl_phdr_info* library, size_t, void* context) {
  const std::string_view path = library->dlpi_name ? library->dlpi_name : "";
  if (!path.ends_with("/libtorch_cpu.so")) return 0;
  *static_cast<std::string*>(context) =
      std::filesystem::path(path).parent_path().parent_path().string();
  return 1;
}

}  // namespace

std::optional<Version> cuda_of_torch(const std::string& folder) {
  std::ifstream file(folder + "/version.py");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("cuda")) continue;
    const size_t begin = line.find('\'');
    if (begin == line.npos) return std::nullopt;
    return Version::parse(line.substr(begin + 1, line.rfind('\'') - begin - 1));
  }
  return std::nullopt;
}

TorchInstall find_torch(const Environment& environment, const MachineFacts& machine) {
  TorchInstall torch;
  visit_loaded_objects(visit_torch, &torch.folder);
  if (!torch.folder.empty()) {
    if (const auto known = machine.in_process.find("torch"); known != machine.in_process.end())
      torch.version = known->second;
  } else {
    for (const Tool& tool : find_tools(environment)) {
      if (tool.name != "torch" || tool.path.empty()) continue;
      torch.folder = tool.path;
      torch.version = Version::parse(tool.version).value_or(Version());
    }
  }
  if (!torch.folder.empty()) torch.cuda = cuda_of_torch(torch.folder);
  return torch;
}

}  // namespace opdock
