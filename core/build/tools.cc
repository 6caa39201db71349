// SPDX-License-Identifier: Apache-2.0
#include "build/tools.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/files.h"
#include "base/installed.h"
#include "facts/environment.h"
#include "facts/nvrtc_search.h"
#include "facts/tools.h"
#include "jit/nvrtc_files.h"

namespace opdock {
namespace {

namespace fs = std::filesystem;

std::string variable(const char* name) {
  const char* value = secure_getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

std::string find_in_path(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    return name.front() == '/' && is_executable(name) ? name : std::string();
  }
  return find_executable(variable("PATH"), name);
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  for (size_t at = 0; (at = text.find_first_not_of(" \t", at)) != text.npos;) {
    const size_t end = std::min(text.find_first_of(" \t", at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

void report_missing(Code code, const std::string& found, const std::string& wanted,
                    std::vector<Reason>* reasons) {
  reasons->push_back(make_reason(code, found, wanted));
}

std::vector<std::string> find_compiler(const char* name, std::initializer_list<const char*> others,
                                       std::vector<Reason>* reasons) {
  std::vector<std::string> words = words_of(variable(name));
  if (!words.empty()) {
    const std::string program = find_in_path(words.front());
    if (program.empty()) {
      report_missing(Code::kBuildNoCompiler,
                     std::string(name) + "=" + variable(name) + ", which is not there",
                     "a compiler's absolute path or its name in PATH", reasons);
      return {};
    }
    words.front() = program;
    return words;
  }
  std::string tried;
  for (const char* other : others) {
    const std::string program = find_in_path(other);
    if (!program.empty()) return {program};
    tried += (tried.empty() ? "" : ", ") + std::string(other);
  }
  report_missing(Code::kBuildNoCompiler, "none of " + tried + " in PATH",
                 std::string("a ") + (name[1] == 'X' || name[2] == 'X' ? "C++" : "C") + " compiler",
                 reasons);
  return {};
}

// Finds a script in the active Python environment or in the one that this library is installed in,
// else in PATH.
std::string find_script(const char* name, const char* own_variable) {
  // A program that the user names but that is missing is not silently replaced by another.
  if (const std::string given = variable(own_variable); !given.empty()) return find_in_path(given);
  std::vector<fs::path> folders;
  for (const char* prefix : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const std::string folder = variable(prefix); !folder.empty()) folders.push_back(folder);
  }
  // A wheel lies in PREFIX/lib/python3.x/site-packages/opdock.
  const fs::path package = installed().root;
  if (package.parent_path().filename() == "site-packages") {
    folders.push_back(package.parent_path().parent_path().parent_path().parent_path());
  }
  for (const fs::path& folder : folders) {
    if (is_executable(folder / "bin" / name)) return (folder / "bin" / name).string();
  }
  return find_in_path(name);
}

std::string find_gpu_compiler(const char* name, const char* own_variable) {
  // A program that the user names but that is missing is not silently replaced by another.
  if (const std::string given = variable(own_variable); !given.empty()) return find_in_path(given);
  return find_gpu_tool(name, current_environment());
}

}  // namespace

std::string find_nvcc() {
  return find_gpu_compiler("nvcc", "CUDACXX");
}

std::vector<std::string> nvcc_parts(const std::string& nvcc) {
  std::error_code error;
  const fs::path folder = fs::canonical(nvcc, error).parent_path();
  std::vector<std::string> parts;
  if (error) return parts;
  // The parts are next to the nvcc driver, or in ../nvvm/bin.
  for (const fs::path& part : {folder / "cudafe++", folder / "ptxas", folder / "fatbinary",
                               folder.parent_path() / "nvvm/bin/cicc"}) {
    if (fs::exists(part, error)) parts.push_back(part.string());
  }
  return parts;
}

std::vector<std::string> nvrtc_folders() {
  std::vector<std::string> folders;
  for (const std::string& path : nvrtc_candidates(compiler_folders(), nullptr)) {
    const std::string folder = fs::path(path).parent_path().string();
    const bool is_usable = folder.starts_with('/') && folder.find_first_of("'\n") == folder.npos;
    if (is_usable && std::find(folders.begin(), folders.end(), folder) == folders.end())
      folders.push_back(folder);
  }
  return folders;
}

Languages languages_of(const Manifest& manifest, const BuildOptions& options) {
  Languages languages;
  for (const std::string& source : manifest.sources) {
    languages.cuda |= source.ends_with(".cu");
    languages.hip |= source.ends_with(".hip");
  }
  const bool has_kernels = manifest.device || manifest.has_gpu_formulas();
  languages.device_images = has_kernels && !options.cuda_archs.empty();
  languages.hip_images = has_kernels && !options.hip_archs.empty();
  languages.packages = manifest.build.packages();
  return languages;
}

BuildTools find_build_tools(const Languages& languages, std::vector<Reason>* reasons) {
  BuildTools tools;
  tools.cpp = find_compiler("CXX", {"c++", "g++", "clang++"}, reasons);
  tools.c = find_compiler("CC", {"cc", "gcc", "clang"}, reasons);
  tools.meson = find_script("meson", "MESON");
  if (tools.meson.empty()) {
    report_missing(Code::kBuildNoMeson, "no meson in the Python environment or in PATH",
                   "meson 1.1 or newer", reasons);
  }
  tools.ninja = find_script("ninja", "NINJA");
  if (tools.ninja.empty()) {
    report_missing(Code::kBuildNoNinja, "no ninja in the Python environment or in PATH", "ninja",
                   reasons);
  }
  if (!languages.packages.empty() &&
      (tools.pkg_config = find_script("pkg-config", "PKG_CONFIG")).empty()) {
    report_missing(Code::kBuildNoPkgConfig, "no pkg-config in the Python environment or in PATH",
                   "pkg-config, for the plugin's libraries", reasons);
  }
  if (languages.cuda && (tools.nvcc = find_nvcc()).empty()) {
    report_missing(Code::kBuildNoNvcc,
                   "no nvcc in CUDA_HOME, /usr/local/cuda, PATH or Python's packages",
                   "nvcc, for the plugin's .cu files", reasons);
  }
  if (languages.hip && (tools.hipcc = find_gpu_compiler("hipcc", "HIPCXX")).empty()) {
    report_missing(Code::kBuildNoHipcc, "no hipcc in ROCM_PATH, /opt/rocm or PATH",
                   "hipcc, for the plugin's .hip files", reasons);
  }
  if (languages.device_images) tools.nvrtc_folders = nvrtc_folders();
  const Installed& own = installed();
  tools.pack = own.program("opdock-pack");
  tools.guard = own.program("opdock-guard");
  for (const auto& [what, path] : {std::pair<const char*, std::string>{"opdock-pack", tools.pack},
                                   {"opdock-guard", tools.guard},
                                   {"share/opdock/plugin-build", own.plugin_build},
                                   {"opdock/plugin.h", own.include},
                                   {"opdock/device.cuh", own.device}}) {
    if (!path.empty()) continue;
    report_missing(Code::kBuildIncomplete,
                   "no " + std::string(what) + " where this Opdock is installed" +
                       (own.root.empty() ? "" : " (" + own.root + ")"),
                   what, reasons);
  }
  return tools;
}

BuildTools find_compiler_tools(std::vector<Reason>* reasons) {
  BuildTools tools;
  tools.cpp = find_compiler("CXX", {"c++", "g++", "clang++"}, reasons);
  tools.guard = installed().program("opdock-guard");
  if (tools.guard.empty() || installed().include.empty()) {
    report_missing(Code::kBuildIncomplete,
                   "no opdock-guard or no opdock/plugin.h where this Opdock is installed",
                   "a whole installation", reasons);
  }
  return tools;
}

std::vector<std::string> build_environment(const BuildTools& tools, const std::string& temporary) {
  std::string path;
  const auto add_folder = [&](const std::string& folder) {
    if (folder.empty() || (":" + path + ":").find(":" + folder + ":") != std::string::npos) return;
    path += (path.empty() ? "" : ":") + folder;
  };
  for (const std::vector<std::string>* compiler : {&tools.cpp, &tools.c}) {
    if (!compiler->empty()) add_folder(fs::path(compiler->front()).parent_path().string());
  }
  for (const std::string& tool : {tools.meson, tools.ninja}) {
    if (!tool.empty()) add_folder(fs::path(tool).parent_path().string());
  }
  for (const char* folder : {"/usr/local/bin", "/usr/bin", "/bin"}) add_folder(folder);

  // LC_ALL=C: the builder parses messages. SOURCE_DATE_EPOCH: for __DATE__. PYTHONUTF8: file names.
  std::vector<std::string> all = {
      "PATH=" + path,          "TMPDIR=" + temporary,  "LC_ALL=C",
      "PYTHONUTF8=1",          "SOURCE_DATE_EPOCH=0",  "NINJA=" + tools.ninja,
      "CCACHE_NOHASHDIR=true", "NINJA_STATUS=[%f/%t] "};
  if (!tools.pkg_config.empty()) all.push_back("PKG_CONFIG=" + tools.pkg_config);
  for (const char* name : {"HOME", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CUDA_HOME",
                           "CUDA_PATH", "ROCM_PATH", "HIP_PATH", "CCACHE_DIR", "PKG_CONFIG_PATH"}) {
    if (const std::string value = variable(name); !value.empty()) {
      all.push_back(name + ("=" + value));
    }
  }
  return all;
}

}  // namespace opdock
