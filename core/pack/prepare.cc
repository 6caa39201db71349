// SPDX-License-Identifier: Apache-2.0
#include "pack/prepare.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "arch/nvcc_toolkit.h"
#include "formula/cpu_source.h"
#include "pack/arguments.h"
#include "pack/ask.h"
#include "pack/formulas.h"
#include "pack/ops_header.h"
#include "pack/outputs.h"

namespace opdock::pack {
namespace {

namespace fs = std::filesystem;

void append(const Arguments& more, Arguments* all) {
  all->insert(all->end(), more.begin(), more.end());
}

std::string lines(const Arguments& arguments) {
  std::string text;
  for (const std::string& argument : arguments) text += argument + "\n";
  return text;
}

class Preparation {
 public:
  explicit Preparation(const PrepareOptions& options) : options_(options) {}

  int run() {
    std::optional<Manifest> manifest = read_declaration(options_.toml);
    if (!manifest) return 1;
    manifest_ = *std::move(manifest);
    depends_.push_back(manifest_.path);
    if (const auto reason = ask_libraries(manifest_.build, &libraries_)) return report(*reason);
    append(libraries_.link, &link_);
    depends_.insert(depends_.end(), libraries_.files.begin(), libraries_.files.end());
    if (const auto reason = prepare_nvcc()) return report(*reason);
    if (const auto reason = prepare_hipcc()) return report(*reason);
    return write();
  }

 private:
  std::string path(const char* name) const {
    return (fs::path(options_.out_dir) / (options_.prefix + name)).string();
  }

  // Returns the arguments that all compilers get: needs.h and the folders.
  Arguments common() const {
    Arguments arguments = {"-include", path("needs.h")};
    for (const std::string& folder : manifest_.build.include)
      arguments.push_back("-I" + (manifest_.folder() / folder).lexically_normal().string());
    return arguments;
  }

  Arguments flags_for(const std::string& compiler) const {
    const auto found = manifest_.build.flags.find(compiler);
    return found == manifest_.build.flags.end() ? Arguments() : found->second;
  }

  Arguments host(const char* language) const {
    Arguments arguments = common();
    append(libraries_.compile, &arguments);
    append(flags_for(language), &arguments);
    append(flags_for(options_.compiler_id), &arguments);
    return arguments;
  }

  // Returns the arguments of the kernels' compilers. From pkg-config they take only folders and
  // defines.
  Arguments kernels() const {
    Arguments arguments = {"-I" + options_.headers, "-I" + options_.device_headers};
    append(common(), &arguments);
    for (const std::string& argument : libraries_.compile)
      if (argument.starts_with("-I") || argument.starts_with("-D")) arguments.push_back(argument);
    return arguments;
  }

  std::optional<Reason> prepare_nvcc() {
    if (options_.nvcc.empty()) return std::nullopt;
    ArchLists lists = options_.archs;
    lists.least_cuda = manifest_.build.least_cuda;
    Arguments archs;
    if (std::optional<Reason> reason = nvcc_archs(lists, options_.nvcc, &archs)) return reason;
    // -objtemp: the names of temporary files, which end up in the object, have no process numbers.
    nvcc_ = {options_.nvcc, "-std=c++20", "-O3",
             "-objtemp",    "-ccbin",     options_.host_compiler,
             "-cudart",     "static",     "-Xcompiler=-fPIC,-fvisibility=hidden"};
    append(kernels(), &nvcc_);
    append(archs, &nvcc_);
    append(flags_for("nvcc"), &nvcc_);
    const std::string toolkit =
        toolkit_of(output_of({options_.nvcc, "--dryrun", "-c", "-x", "cu", "/dev/null"}).text);
    if (!toolkit.empty())
      for (const std::string& folder : library_folders(toolkit)) link_.push_back("-L" + folder);
    append({"-lcudart_static", "-lpthread", "-ldl", "-lrt"}, &link_);
    depends_.push_back(options_.nvcc);
    return std::nullopt;
  }

  std::optional<Reason> prepare_hipcc() {
    if (options_.hipcc.empty()) return std::nullopt;
    Arguments archs;
    if (std::optional<Reason> reason = hipcc_archs(options_.archs, &archs)) return reason;
    hipcc_ = {options_.hipcc, "-std=c++20", "-O3", "-fPIC", "-fvisibility=hidden"};
    append(kernels(), &hipcc_);
    append(archs, &hipcc_);
    append(flags_for("hipcc"), &hipcc_);
    append({"-x", "hip"}, &hipcc_);
    std::error_code failed;
    if (fs::is_directory("/opt/rocm/lib", failed)) link_.push_back("-L/opt/rocm/lib");
    link_.push_back("-lamdhip64");
    return std::nullopt;
  }

  int write() const {
    // Without C sources, only the descriptor is compiled as C.
    const bool has_c = std::any_of(manifest_.sources.begin(), manifest_.sources.end(),
                                   [](const std::string& name) { return name.ends_with(".c"); });
    const FormulaSources formulas = formula_sources(manifest_);
    const std::pair<const char*, std::string> files[] = {
        {"ops.h", ops_header(manifest_)},
        {"needs.h", needs_header(manifest_)},
        {"c.args", response_file(has_c ? host("c") : Arguments())},
        {"cxx.args", response_file(host("cxx"))},
        {"link.args", response_file(link_)},
        {"nvcc.args", lines(nvcc_)},
        {"hipcc.args", lines(hipcc_)},
        {"formulas.cc", formulas.code},
        {"formula_table.cc", formulas.table},
        {"formulas.args", response_file(formula::cpu_source_arguments())},
    };
    for (const auto& [name, text] : files)
      if (!write_file(path(name), text)) return 1;
    return write_depfile(options_.depfile, path("ops.h"), depends_) ? 0 : 1;
  }

  const PrepareOptions& options_;
  Manifest manifest_;
  LibraryArguments libraries_;
  Arguments nvcc_, hipcc_, link_;
  std::vector<fs::path> depends_;
};

}  // namespace

int prepare(const PrepareOptions& options) {
  return Preparation(options).run();
}

int run_compiler(const std::string& arguments, const std::string& source, const std::string& output,
                 const std::string& depfile) {
  Arguments words;
  std::ifstream file(arguments);
  for (std::string line; std::getline(file, line);) words.push_back(line);
  if (words.empty()) {
    return report(std::vector<std::string>{
        fmt::format("opdock-pack: error: found no compiler in {}, wanted what --prepare writes "
                    "for one",
                    arguments)});
  }
  append({"-c", source, "-o", output, "-MD", "-MF", depfile}, &words);
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  execvp(pointers[0], pointers.data());
  return report(std::vector<std::string>{
      fmt::format("opdock-pack: error: {} cannot be run: {}", words[0], std::strerror(errno))});
}

int list_plugins(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(folder, failed)) {
    const bool is_plugin =
        fs::exists(entry.path() / "plugin.toml") && fs::exists(entry.path() / "meson.build");
    if (is_plugin) names.push_back(entry.path().filename().string());
  }
  if (failed) {
    return report(std::vector<std::string>{
        fmt::format("opdock-pack: error: {} cannot be read: {}", folder, failed.message())});
  }
  std::sort(names.begin(), names.end());
  std::fputs(lines(names).c_str(), stdout);
  return std::fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace opdock::pack
