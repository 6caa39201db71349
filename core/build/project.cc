// SPDX-License-Identifier: Apache-2.0
#include "build/project.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/files.h"
#include "base/installed.h"
#include "build/limits.h"

namespace opdock {
namespace {

namespace fs = std::filesystem;

// Returns a Meson string. A machine file has no escapes, so a quote cannot be written: nothing
// whose name the user chooses freely, such as the cache's folder, may be in such a string.
std::string quoted(const std::string& text) {
  return "'" + text + "'";
}

std::string quoted_list(const std::vector<std::string>& texts) {
  std::string out;
  for (const std::string& text : texts) out += (out.empty() ? "" : ", ") + quoted(text);
  return "[" + out + "]";
}

bool write_text(const std::string& path, const std::string& text, std::vector<Reason>* reasons) {
  const int error = write_whole(path, text);
  if (error != 0)
    reasons->push_back(cannot_write(path, error, Code::kBuildNoCache, "a file written"));
  return error == 0;
}

// Copies the files of the wrapper project, following links, because the build tree has links in
// place of files. Returns 0 or errno, unlike the standard library's copy, which reports every
// failure to write as a device error.
int copy_tree(const std::string& from, const std::string& to) {
  std::error_code error;
  for (fs::recursive_directory_iterator at(from, error), end; !error && at != end;
       at.increment(error)) {
    if (!at->is_regular_file()) continue;
    const fs::path target = fs::path(to) / at->path().lexically_relative(from);
    const std::optional<std::string> text = read_file(at->path());
    if (!text) return EIO;
    if (const int failed = make_folders(target.parent_path())) return failed;
    if (const int failed = write_whole(target, *text)) return failed;
  }
  return error.value();
}

// Returns the meson.build for a plugin that has none: its sources by the endings of their names.
std::string default_fragment(const Manifest& manifest) {
  std::vector<std::string> host, cuda, hip;
  for (const std::string& source : manifest.sources) {
    for (const char* ending : {".cc", ".cpp", ".cxx", ".c"}) {
      if (source.ends_with(ending)) host.push_back(source);
    }
    if (source.ends_with(".cu")) cuda.push_back(source);
    if (source.ends_with(".hip")) hip.push_back(source);
  }
  std::string text = "opdock_plugins += [{'name': " + quoted(manifest.name) +
                     ", 'toml': files('plugin.toml'), 'sources': files(" + quoted_list(host) + ")";
  if (!cuda.empty()) text += ", 'cuda_sources': files(" + quoted_list(cuda) + ")";
  if (!hip.empty()) text += ", 'hip_sources': files(" + quoted_list(hip) + ")";
  return text + "}]\n";
}

// Returns whether the plugin is a Python module. The interpreter itself defines what such a module
// calls, so there is no library to link that would define it.
bool is_for_python(const Manifest& manifest) {
  return std::any_of(manifest.libraries.begin(), manifest.libraries.end(),
                     [](const LibraryClaim& claim) { return claim.library == "python"; });
}

std::string native_file(const Manifest& manifest, const BuildOptions& options,
                        const BuildTools& tools) {
  std::ostringstream text;
  text << "[binaries]\n"
       << "c = " << quoted_list(tools.c) << "\n"
       << "cpp = " << quoted_list(tools.cpp) << "\n";
  if (!tools.nvcc.empty()) text << "nvcc = " << quoted(tools.nvcc) << "\n";
  if (!tools.hipcc.empty()) text << "hipcc = " << quoted(tools.hipcc) << "\n";
  // The facts that Meson would find out by compiling, linking and running programs are known
  // already, or show when the plugin is compiled. -UNDEBUG turns assertions on; the other two
  // defines are what Meson would add to them once it knew which C++ library is used.
  text << "[properties]\n"
       << "skip_sanity_check = true\n"
       << "[built-in options]\n"
       << "b_ndebug = 'true'\n"
       << "b_lundef = " << (is_for_python(manifest) ? "'false'" : "'true'") << "\n"
       << "c_args = ['-UNDEBUG']\n"
       << "cpp_args = ['-UNDEBUG', '-D_GLIBCXX_ASSERTIONS=1', "
          "'-D_LIBCPP_HARDENING_MODE=_LIBCPP_HARDENING_MODE_FAST']\n"
       << "optimization = " << (options.debug ? "'0'" : "'2'") << "\n"
       << "debug = " << (options.debug ? "true" : "false") << "\n"
       << "warning_level = '1'\n"
       << "wrap_mode = 'nofallback'\n"
       << "libdir = 'lib'\n"  // else Meson asks the distribution for it
       << "[project options]\n"
       << "opdock-pack = " << quoted(tools.pack) << "\n"
       << "include-dir = '../include'\n"  // relative to the build folder, where the compilers run
       << "device-dir = '../device'\n"
       << "nvrtc-search = " << quoted_list(tools.nvrtc_folders) << "\n"
       << "folders = ['plugin']\n"
       << "cuda = " << (options.cuda_archs.empty() ? "'disabled'" : "'auto'") << "\n"
       << "cuda-archs = " << quoted(options.cuda_archs) << "\n"
       << "gpu-archs = " << quoted(options.gpu_archs) << "\n"
       << "hip-archs = " << quoted(options.hip_archs) << "\n";
  if (options.cpu_level != 0) text << "cpu-level = 'v" << options.cpu_level << "'\n";
  return text.str();
}

// Returns the number in a file such as "/sys/fs/cgroup/memory.max", or `otherwise` if there is
// none.
double number_in(const std::string& path, double otherwise) {
  std::ifstream file(path);
  double number = 0;
  return file >> number ? number : otherwise;
}

double free_memory() {
  double free_bytes = 0;
  std::ifstream meminfo("/proc/meminfo");
  for (std::string line; std::getline(meminfo, line);) {
    if (line.starts_with("MemAvailable:")) free_bytes = std::atof(line.c_str() + 13) * 1024;
  }
  const double limit = number_in("/sys/fs/cgroup/memory.max", 0);
  if (limit <= 0) return free_bytes;
  const double left = limit - number_in("/sys/fs/cgroup/memory.current", 0);
  return free_bytes <= 0 ? left : std::min(free_bytes, left);
}

int usable_cores() {
  cpu_set_t cores;
  int count = sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
  std::ifstream quota("/sys/fs/cgroup/cpu.max");  // "200000 100000", or "max 100000"
  double time = 0, period = 0;
  if (quota >> time >> period && period > 0) {
    count = std::min(count, static_cast<int>(time / period + 0.5));
  }
  return std::max(count, 1);
}

}  // namespace

ProjectFolders::ProjectFolders(const std::string& folder)
    : all(folder),
      project(folder + "/project"),
      plugin(project + "/plugins/plugin"),
      build(folder + "/build"),
      temporary(folder + "/tmp"),
      native(folder + "/native.ini") {}

bool write_project(const ProjectFolders& folders, const Manifest& manifest,
                   const BuildOptions& options, const BuildTools& tools,
                   std::vector<Reason>* reasons) {
  const std::string& rules = installed().plugin_build;
  int error = copy_tree(rules, folders.project);
  if (error == 0) error = make_folders(folders.temporary);
  // The headers get relative names, so that the result contains no path of this machine.
  const std::string include = folders.all + "/include", device = folders.all + "/device";
  if (error == 0 && symlink(installed().include.c_str(), include.c_str()) != 0) error = errno;
  if (error == 0 && symlink(installed().device.c_str(), device.c_str()) != 0) error = errno;
  if (error != 0) {
    reasons->push_back(
        cannot_write(folders.project, error, Code::kBuildIncomplete, "a copy of " + rules));
    return false;
  }
  if (!fs::exists(folders.plugin + "/meson.build") &&
      !write_text(folders.plugin + "/meson.build", default_fragment(manifest), reasons)) {
    return false;
  }
  return write_text(folders.native, native_file(manifest, options, tools), reasons);
}

// Paths are relative to the build's folder, because Meson expands "$NAME" and "~" in them.
std::vector<std::string> setup_command(const BuildTools& tools) {
  return {tools.meson, "setup", "--native-file", "native.ini", "build", "project"};
}

std::vector<std::string> compile_command(const BuildTools& tools, int jobs) {
  return {tools.ninja, "-C", "build", "-j", std::to_string(jobs)};
}

int default_jobs(const Languages& languages) {
  // The memory in bytes that cc1plus takes for a file with many templates; nvcc runs several such
  // programs.
  const double each = languages.cuda || languages.hip ? 2e9 : 1e9;
  const double memory = free_memory();
  const int room = memory <= 0 ? 1 : std::max(1, static_cast<int>(memory / each));
  return std::min(usable_cores(), room);
}

}  // namespace opdock
