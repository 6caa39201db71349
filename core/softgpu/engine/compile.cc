// SPDX-License-Identifier: Apache-2.0
#include "compile.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/sha256.h"
#include "cuda_words.h"
#include "embedded.h"
#include "process.h"

namespace softgpu {
namespace {

namespace fs = std::filesystem;

// The version of this file's recipe: increment it when the library that is made from a source
// changes.
constexpr const char* kRecipe = "7";

// Returns the words of CXX, or the first compiler found in PATH.
std::vector<std::string> compiler() {
  std::vector<std::string> words;
  if (const char* cxx = std::getenv("CXX")) {
    std::istringstream text(cxx);
    for (std::string word; text >> word;) words.push_back(word);
  }
  if (!words.empty()) return words;
  for (const char* name : {"g++", "clang++", "c++"})
    if (const std::string path = find_program(name); !path.empty()) return {path};
  return {};
}

bool is_clang(std::vector<std::string> cxx) {
  std::string version;
  cxx.push_back("--version");
  return run_program(cxx, &version) && version.find("clang") != version.npos;
}

// Returns the device compiler's options that mean the same to a C++ compiler.
std::vector<std::string> usable_options(const std::vector<std::string>& options) {
  std::vector<std::string> out;
  for (size_t i = 0; i < options.size(); ++i) {
    const std::string& option = options[i];
    if (option == "-D" || option == "-U" || option == "--define-macro") {
      if (i + 1 < options.size()) out.push_back((option == "-U" ? "-U" : "-D") + options[++i]);
    } else if (option.rfind("--define-macro=", 0) == 0) {
      out.push_back("-D" + option.substr(15));
    } else if (option.rfind("-D", 0) == 0 || option.rfind("-U", 0) == 0) {
      out.push_back(option);
    } else if (option.rfind("-std=", 0) == 0 || option.rfind("--std=", 0) == 0) {
      const std::string standard = option.substr(option.find('=') + 1);
      // The code that describes the kernels needs C++17.
      if (standard == "c++20" || standard == "c++23") out.push_back("-std=" + standard);
    }
  }
  return out;
}

// Returns the text to compile: the program, followed by the table of its kernels.
std::string with_table(const KernelSource& source, const std::string& program) {
  std::string text = "#include \"softgpu/device_calls.h\"\n#include \"" + program + "\"\n";
  text +=
      "extern \"C\" __attribute__((visibility(\"hidden\"))) const softgpu::Hooks* softgpu_hooks;\n";
  text += "static constexpr softgpu::KernelEntry softgpu_kernels[] = {\n";
  for (const std::string& kernel : source.kernels)
    text += "  softgpu::KernelOf<decltype(&" + kernel + "), &" + kernel + ">::entry(R\"name(" +
            kernel + ")name\"),\n";
  text += "};\nextern \"C\" const softgpu::Module softgpu_module;\n";
  text += "const softgpu::Module softgpu_module = {softgpu::kModuleVersion, " +
          std::to_string(source.warp_size) + ", softgpu_kernels, " +
          std::to_string(source.kernels.size()) + ", &softgpu_hooks};\n";
  return text;
}

bool write_file(const fs::path& path, const std::string& text) {
  std::error_code failed;
  fs::create_directories(path.parent_path(), failed);
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  return !file.fail();
}

// Adds the compiler to the hash. A different compiler under the same name has a different size or
// date.
void add_compiler(const std::vector<std::string>& cxx, opdock::FieldHasher* hash) {
  for (const std::string& word : cxx) hash->add("-c").add(word);
  std::error_code failed;
  const fs::path program = cxx[0].find('/') == cxx[0].npos ? find_program(cxx[0]) : cxx[0];
  hash->add(std::to_string(fs::file_size(program, failed)));
  hash->add(std::to_string(fs::last_write_time(program, failed).time_since_epoch().count()));
}

std::string name_of(const KernelSource& source, const std::vector<std::string>& cxx) {
  opdock::FieldHasher hash;
  hash.add(kRecipe)
      .add(kModuleText)
      .add(kDeviceCallsText)
      .add(kDeviceCallsCode)
      .add(kTargetSoftText);
  hash.add(source.program).add(source.program_name);
  for (const auto& [name, text] : source.headers) hash.add(name).add(text);
  for (const std::string& option : source.options) hash.add("-o").add(option);
  for (const std::string& kernel : source.kernels) hash.add("-k").add(kernel);
  hash.add(std::to_string(source.warp_size)).add(std::to_string(source.arch));
  add_compiler(cxx, &hash);
  return opdock::to_hex(hash.finish()).substr(0, 32);
}

// Returns the name of the object file that device_calls.cc is compiled to. It is the same for all
// sources.
std::string calls_name(const std::vector<std::string>& cxx) {
  opdock::FieldHasher hash;
  hash.add(kRecipe).add(kModuleText).add(kDeviceCallsText).add(kDeviceCallsCode);
  add_compiler(cxx, &hash);
  return "calls-" + opdock::to_hex(hash.finish()).substr(0, 32) + ".o";
}

// Returns whether a header's name stays below the folder that it is written to.
bool safe_name(const std::string& name) {
  const fs::path path(name);
  if (name.empty() || path.is_absolute()) return false;
  for (const fs::path& part : path)
    if (part == "..") return false;
  return true;
}

void erase_all(std::string* text, const std::string& what) {
  for (size_t at = text->find(what); at != text->npos; at = text->find(what, at))
    text->erase(at, what.size());
}

// Builds work/library.so. Nothing but `shared`, the object file of device_calls.cc, outlasts
// `work`: it is compiled only if it does not exist, which saves half the time of a small kernel.
bool build(const KernelSource& source, const std::vector<std::string>& cxx, const fs::path& work,
           const fs::path& shared, std::string* problem) {
  // The engine's own headers come last, so that they replace copies of another version among the
  // source's.
  std::vector<std::pair<std::string, std::string>> files = source.headers;
  files.emplace_back("softgpu/module.h", kModuleText);
  files.emplace_back("softgpu/device_calls.h", kDeviceCallsText);
  files.emplace_back("opdock/target_soft.cuh", kTargetSoftText);
  for (const auto& [name, text] : files) {
    if (!safe_name(name) || !write_file(work / "include" / name, text)) {
      *problem = "the header \"" + name + "\" cannot be written below " + work.string();
      return false;
    }
  }
  // The program has its own folder, because it may have the same name as a header.
  const fs::path name = safe_name(source.program_name) ? fs::path(source.program_name)
                                                       : fs::path(source.program_name).filename();
  const fs::path program = work / "program" / name;
  if (!write_file(program, source.program) ||
      !write_file(work / "kernels.cc", with_table(source, program.string())) ||
      !write_file(work / "device_calls.cc", kDeviceCallsCode)) {
    *problem = "nothing can be written below " + work.string();
    return false;
  }
  const std::string at = work.string() + "/";
  // Debug information and messages name files as #include does (library_source_lines.cc). -g1: only
  // lines and functions. DWARF 4, because not every addr2line reads clang's DWARF 5 correctly.
  std::vector<std::string> common = cxx;
  for (const char* option : {"-x", "c++", "-c", "-std=c++17", "-Og", "-gdwarf-4", "-g1", "-fPIC",
                             "-fno-exceptions", "-fno-rtti", "-w"})
    common.push_back(option);
  common.push_back("-I" + at + "include");
  for (const char* folder : {"include", "program"})
    common.push_back("-ffile-prefix-map=" + at + folder + "=/softgpu");
  std::vector<std::string> kernels = common;
  for (const std::string& option : usable_options(source.options)) kernels.push_back(option);
  // By default clang does not instrument a read that is followed by a write of the same address.
  // GCC spends a tenth of its time on garbage collections that free little.
  if (is_clang(cxx))
    for (const char* option : {"-mllvm", "-tsan-instrument-read-before-write"})
      kernels.push_back(option);
  else
    kernels.push_back("--param=ggc-min-heapsize=1000000");
  for (const char* option : {"-fsanitize=thread", "-fsanitize-coverage=trace-pc", "-fwrapv",
                             "-fsanitize=integer-divide-by-zero,signed-integer-overflow",
                             "-fsanitize=float-cast-overflow"})
    kernels.push_back(option);
  for (const std::string& option :
       {std::string("-DOPDOCK_SOFT"), "-DOPDOCK_SOFT_WARP=" + std::to_string(source.warp_size),
        "-DOPDOCK_SOFT_ARCH=" + std::to_string(source.arch), at + "kernels.cc", std::string("-o"),
        at + "kernels.o"})
    kernels.push_back(option);
  std::vector<std::string> calls = common;
  for (const std::string& option : {std::string("-O2"), std::string("-fno-builtin"),
                                    at + "device_calls.cc", std::string("-o"), at + "calls.o"})
    calls.push_back(option);
  std::vector<std::string> link = cxx;
  for (const std::string& option :
       {std::string("-shared"), std::string("-Wl,-Bsymbolic,-z,defs,-z,now"), at + "kernels.o",
        shared.string(), std::string("-lm"), std::string("-o"), at + "library.so"})
    link.push_back(option);
  const auto run = [&](const std::vector<std::string>& command) {
    std::string output;
    if (run_program(command, &output)) return true;
    erase_all(&output, at + "include/");
    erase_all(&output, at + "program/");
    erase_all(&output, "/softgpu/");
    const std::string words = explain_cuda_words(source, output);
    *problem = words.empty()
                   ? "the device source does not compile for the software GPU:\n" + output
                   : "the device source does not compile for the software GPU, which has the "
                     "vocabulary of opdock/device.cuh (docs/reference/vocabulary.md):\n" +
                         words;
    return false;
  };
  if (!run(kernels)) return false;
  std::error_code failed;
  if (!fs::exists(shared, failed)) {
    if (!run(calls)) return false;
    // Processes that compile other sources meanwhile may do the same: the last one's file stays.
    fs::rename(work / "calls.o", shared, failed);
    if (failed) {
      *problem = shared.string() + " cannot be made: " + failed.message();
      return false;
    }
  }
  return run(link);
}

}  // namespace

std::string compile_kernels(const KernelSource& source, const std::string& folder,
                            std::string* problem) {
  const std::vector<std::string> cxx = compiler();
  if (cxx.empty()) {
    *problem =
        "no C++ compiler was found: the software GPU compiles kernels with CXX, else g++ or "
        "clang++ in PATH; install one (Debian: g++)";
    return "";
  }
  std::error_code failed;
  const fs::path root = fs::absolute(folder, failed);
  fs::create_directories(root, failed);
  const std::string name = name_of(source, cxx);
  const fs::path library = root / (name + ".so");
  if (fs::exists(library, failed)) return library.string();
  const std::string lock_path = (root / (name + ".lock")).string();
  const int lock = open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock < 0 || flock(lock, LOCK_EX) != 0) {
    *problem = lock_path + " cannot be locked: " + std::strerror(errno);
    if (lock >= 0) close(lock);
    return "";
  }
  std::string made;
  if (fs::exists(library, failed)) {
    made = library.string();
  } else {
    const fs::path work = root / (name + ".work");
    fs::remove_all(work, failed);
    if (build(source, cxx, work, root / calls_name(cxx), problem)) {
      fs::rename(work / "library.so", library, failed);
      if (failed) *problem = library.string() + " cannot be made: " + failed.message();
      if (!failed) made = library.string();
    }
    fs::remove_all(work, failed);
  }
  close(lock);
  return made;
}

}  // namespace softgpu
