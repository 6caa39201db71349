// SPDX-License-Identifier: Apache-2.0
#include "facts/tools.h"

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/files.h"
#include "facts/nvrtc_search.h"
#include "facts/tool_search.h"
#include "link/search.h"

namespace opdock {
namespace {

namespace fs = std::filesystem;

// Returns the toolkit's version from version.json in its folder, the parent of bin. Where that file
// is missing, a header has major and minor: "#define CUDA_VERSION 13000".
std::string cuda_version(const std::string& nvcc) {
  const fs::path folder = fs::path(resolve_links(nvcc)).parent_path().parent_path();
  const nlohmann::json json =
      nlohmann::json::parse(read_file(folder / "version.json").value_or(""), nullptr,
                            /*allow_exceptions=*/false);
  for (const char* part : {"cuda_nvcc", "cuda"}) {
    if (json.is_object() && json.contains(part) && json[part].is_object()) {
      return json[part].value("version", std::string());
    }
  }
  constexpr std::string_view kDefine = "#define CUDA_VERSION ";
  const std::string header = read_file(folder / "include/cuda.h").value_or("");
  const size_t at = header.find(kDefine);
  if (at == header.npos) return {};
  const int version = std::atoi(header.c_str() + at + kDefine.size());
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string first_line(std::string text) {
  return text.substr(0, text.find('\n'));
}

std::string path_of_nvcc(const ToolSearch& search) {
  std::vector<fs::path> folders;
  for (const fs::path& folder : search.cuda_folders()) folders.push_back(folder / "bin");
  const std::string path = search.executable("nvcc", folders);
  return path.empty() ? search.nvcc_of_wheels() : path;
}

std::string path_of_hipcc(const ToolSearch& search) {
  std::vector<fs::path> folders;
  for (const fs::path& folder : search.rocm_folders()) folders.push_back(folder / "bin");
  return search.executable("hipcc", folders);
}

Tool nvcc_tool(const ToolSearch& search) {
  Tool tool{"nvcc", "plugins with kernels compiled by hand", path_of_nvcc(search), "",
            "apt install nvidia-cuda-toolkit, or NVIDIA's CUDA Toolkit"};
  if (!tool.path.empty()) tool.version = cuda_version(tool.path);
  return tool;
}

// Returns "5.2.21153" from lines like "HIP_VERSION_MAJOR=5", which distributions' packages have.
std::string hip_version(const std::string& text) {
  std::string version;
  for (const char* part : {"HIP_VERSION_MAJOR=", "HIP_VERSION_MINOR=", "HIP_VERSION_PATCH="}) {
    const size_t at = text.find(part);
    if (at == text.npos) return version;
    const size_t begin = at + std::string_view(part).size();
    version += (version.empty() ? "" : ".") +
               text.substr(begin, text.find_first_not_of("0123456789", begin) - begin);
  }
  return version;
}

Tool find_hipcc(const ToolSearch& search) {
  Tool tool{"hipcc", "plugins with HIP kernels compiled by hand", path_of_hipcc(search), "",
            "apt install hipcc, or AMD's ROCm"};
  if (!tool.path.empty()) {
    const fs::path folder = fs::path(resolve_links(tool.path)).parent_path().parent_path();
    tool.version = first_line(read_file(folder / ".info/version").value_or(""));
    if (tool.version.empty())
      tool.version = hip_version(read_file(folder / "share/hip/version").value_or(""));
  }
  return tool;
}

Tool find_compiler(const ToolSearch& search, const char* name, const char* package) {
  Tool tool{name, "building plugins", search.executable(name), "", package};
  if (!tool.path.empty()) {
    const fs::path real = resolve_links(tool.path);
    tool.version = number_at_end(real.filename().string());
    // Otherwise the folder's name may have the version: /usr/lib/llvm-14/bin/clang.
    if (tool.version.empty()) {
      tool.version = number_at_end(real.parent_path().parent_path().filename().string());
    }
  }
  return tool;
}

Tool find_script(const ToolSearch& search, const char* name, const char* purpose,
                 const char* package) {
  Tool tool{name, purpose, search.executable(name), "", package};
  if (!tool.path.empty()) tool.version = search.package_version(name);
  return tool;
}

Tool find_python(const ToolSearch& search) {
  std::vector<fs::path> folders;
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const std::string folder = search.variable(name); !folder.empty()) {
      folders.push_back(fs::path(folder) / "bin");
    }
  }
  Tool tool{"python", "the Python package", search.executable("python3", folders), "",
            "apt install python3"};
  if (!tool.path.empty()) tool.version = number_at_end(resolve_links(tool.path));
  return tool;
}

Tool find_torch(const ToolSearch& search) {
  Tool tool{"torch", "calling ops with PyTorch tensors", "", "", "pip install torch"};
  for (const fs::path& folder : search.site_packages()) {
    std::error_code error;
    if (!fs::is_regular_file(folder / "torch/version.py", error)) continue;
    tool.path = (folder / "torch").string();
    tool.version = search.package_version("torch");
    return tool;
  }
  return tool;
}

// Returns the path at which the loader would find `library`, a path or a name; empty if nowhere.
// With another root only paths are searched, since the loader knows no other root.
std::string find_loadable(const std::string& library, const Environment& environment) {
  const bool is_path = library.find('/') != std::string::npos;
  if (!is_path && !environment.root.empty()) return {};
  return find_library(library).value_or("");
}

// Finds the first library of that name in `folders`, the newest in each folder.
void find_in_folders(const std::vector<fs::path>& folders, const std::string& prefix, Tool* tool) {
  for (const fs::path& folder : folders) {
    for (const std::string& name : names_in(folder, prefix)) {
      const std::string path = (folder / name).string();
      tool->path = path;
      tool->version = number_at_end(resolve_links(path));
      return;
    }
  }
}

// Finds the first candidate that exists. packages: the wheels that may have it, most likely first.
void find_candidate(const std::vector<std::string>& candidates, const ToolSearch& search,
                    const Environment& environment, const std::vector<std::string>& packages,
                    Tool* tool) {
  for (const std::string& candidate : candidates) {
    tool->path = find_loadable(candidate, environment);
    if (!tool->path.empty()) break;
  }
  if (tool->path.empty()) return;
  tool->version = number_at_end(resolve_links(tool->path));
  // A wheel's file name has only the major number; the package's metadata has the full version.
  if (tool->path.find("-packages/nvidia/") == std::string::npos) return;
  for (const std::string& package : packages) {
    const bool ends_open = package.ends_with("_cu");  // the major number is that of the CUDA
    const std::string version =
        search.package_version(ends_open ? package + tool->version : package);
    if (version.empty()) continue;
    tool->version = version;
    return;
  }
}

// Finds the NVRTC that opdock-pack would use.
Tool find_nvrtc(const ToolSearch& search, const Environment& environment) {
  Tool tool{"nvrtc", "packing CUDA kernels into plugins", "", "",
            "pip install nvidia-cuda-nvrtc-cu12, or the CUDA Toolkit"};
  find_candidate(nvrtc_candidates({}, environment, nullptr), search, environment,
                 {"nvidia_cuda_nvrtc_cu", "nvidia_cuda_nvrtc"}, &tool);
  return tool;
}

// Finds the cuDNN that attention would use in a process that has not loaded one.
Tool find_cudnn(const ToolSearch& search, const Environment& environment) {
  Tool tool{"cudnn", "attention of long prompts, and its gradients, at full speed", "", "",
            "pip install nvidia-cudnn-cu13, or PyTorch for CUDA"};
  find_candidate(cudnn_candidates(environment), search, environment,
                 {"nvidia_cudnn_cu13", "nvidia_cudnn_cu12"}, &tool);
  return tool;
}

Tool find_driver_library(const char* name, const std::string& library, const char* purpose,
                         const char* package, const Environment& environment) {
  Tool tool{name, purpose, find_loadable(library, environment), "", package};
  if (!tool.path.empty()) tool.version = number_at_end(resolve_links(tool.path));
  return tool;
}

Tool find_hiprtc(const ToolSearch& search) {
  Tool tool{"hiprtc", "packing HIP kernels into plugins", "", "",
            "apt install libamdhip64-dev, or AMD's ROCm"};
  std::vector<fs::path> folders;
  for (const fs::path& rocm : search.rocm_folders()) folders.push_back(rocm / "lib");
  for (const fs::path& folder : search.library_folders()) folders.push_back(folder);
  find_in_folders(folders, "libhiprtc.so.", &tool);
  // Up to ROCm 5, hipRTC is part of HIP's run-time library.
  if (tool.path.empty()) find_in_folders(folders, "libamdhip64.so.5", &tool);
  return tool;
}

}  // namespace

std::vector<Tool> find_tools(const Environment& environment) {
  const ToolSearch search(environment);
  return {find_driver_library("libcuda", environment.cuda, "plugins' CUDA kernels",
                              "apt install libcuda1 (Debian) or libnvidia-compute-580-server "
                              "(Ubuntu), of the NVIDIA driver",
                              environment),
          find_driver_library("nvml", environment.nvml, "knowing NVIDIA GPUs without starting CUDA",
                              "apt install libnvidia-ml1 (Debian) or "
                              "libnvidia-compute-580-server (Ubuntu), of the NVIDIA driver",
                              environment),
          find_compiler(search, "g++", "apt install g++"),
          find_compiler(search, "clang++", "apt install clang"),
          find_script(search, "meson", "building plugins", "apt install meson"),
          find_script(search, "ninja", "building plugins", "apt install ninja-build"),
          nvcc_tool(search),
          find_nvrtc(search, environment),
          find_cudnn(search, environment),
          find_hipcc(search),
          find_hiprtc(search),
          find_python(search),
          find_torch(search)};
}

std::string find_gpu_tool(const std::string& name, const Environment& environment) {
  const ToolSearch search(environment);
  if (name == "nvcc") return path_of_nvcc(search);
  return name == "hipcc" ? path_of_hipcc(search) : std::string();
}

}  // namespace opdock
