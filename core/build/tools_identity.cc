// Identifies the compilers that made a result: by their versions for people, by their programs'
// build-ids for machines.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/files.h"
#include "base/sha256.h"
#include "build/limits.h"
#include "build/process.h"
#include "build/tools.h"
#include "facts/environment.h"
#include "jit/hiprtc_files.h"
#include "jit/nvrtc_files.h"
#include "note/build_id.h"

namespace opdock {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxVersionText = 4096;

// Returns the file's size and SHA-256; empty if it cannot be read to its end, because a part of a
// compiler does not identify it.
std::string digest_of(int fd) {
  std::string sha256;
  uint64_t size = 0;
  if (digest_open_file(fd, &sha256, &size) != 0) return {};
  return std::to_string(size) + ":" + sha256;
}

class Identifier {
 public:
  Identifier(const BuildTools& tools, std::chrono::steady_clock::time_point deadline,
             Progress* progress, std::vector<Reason>* reasons)
      : tools_(tools), deadline_(deadline), progress_(progress), reasons_(reasons) {
    environment_ = build_environment(tools, "/tmp");
  }

  // Adds the compiler's version to the text, and its version output, its program and the part that
  // does the work to the id.
  void add_host_compiler(const std::vector<std::string>& compiler, const char* part) {
    const size_t before = reasons_->size();
    const std::string version = ask(compiler, "--version");
    if (reasons_->size() != before) return;  // the reason has been added
    std::string name = fs::path(compiler.back()).filename().string();
    add_version(name + " " + number_in(version));
    for (const std::string& word : compiler) add_program(word);
    hasher_.add(version);
    std::string inner = ask(compiler, std::string("-print-prog-name=") + part);
    while (!inner.empty() && inner.back() == '\n') inner.pop_back();
    if (inner.starts_with('/')) add_program(inner);
  }

  void add_nvcc() {
    const std::string version = ask({tools_.nvcc}, "--version");
    const size_t at = version.find("release ");
    add_version("nvcc " + number_in(at == version.npos ? version : version.substr(at)));
    hasher_.add(version);
    add_program(tools_.nvcc);
    for (const std::string& part : nvcc_parts(tools_.nvcc)) add_program(part);
  }

  void add_hipcc() {
    const std::string version = ask({tools_.hipcc}, "--version");
    const size_t at = version.find("HIP version");
    add_version("hipcc " + number_in(at == version.npos ? version : version.substr(at)));
    hasher_.add(version);
    add_program(tools_.hipcc);
  }

  // Adds every NVRTC found by the rule by which opdock-pack finds the one that it compiles with.
  void add_nvrtc() {
    for (const std::string& path :
         find_nvrtc_paths(tools_.nvrtc_folders, current_environment(), nullptr)) {
      std::error_code error;
      const fs::path real = fs::canonical(path, error);
      if (error) continue;
      add_version(real.filename().string());
      add_program(real.string());
    }
  }

  void add_hiprtc() {
    std::vector<std::string> searched;
    for (const HiprtcFile& file : find_hiprtc_files(current_environment(), &searched)) {
      add_version("hipRTC " + file.version.text());
      hasher_.add(file.id);
    }
  }

  // Adds the version of a library and the arguments for linking it. A missing library is reported
  // when the build is checked.
  void add_package(const std::string& name) {
    std::string answers;
    for (const std::vector<std::string>& question :
         {std::vector<std::string>{"--modversion"}, {"--cflags", "--libs"}}) {
      std::vector<std::string> command = {tools_.pkg_config};
      command.insert(command.end(), question.begin(), question.end());
      command.push_back(name);
      std::string answer;
      if (run(std::move(command), &answer).ok()) answers += answer;
    }
    const std::string version = answers.substr(0, answers.find('\n'));
    if (!version.empty()) add_version(name + " " + version);
    hasher_.add(answers);
  }

  CacheMaker finish() { return {text_, to_hex(hasher_.finish())}; }

 private:
  void add_version(const std::string& version) {
    if (!text_.empty()) text_ += ", ";
    text_ += version;
  }

  void add_program(const std::string& path) { hasher_.add(file_identity(path)); }

  // Returns the last number of the first line: "12.2.0" of "g++
  // (Debian 12.2.0-14+deb12u1) 12.2.0\n…".
  static std::string number_in(const std::string& text) {
    const std::string line = text.substr(0, text.find('\n'));
    std::string best;
    for (size_t at = 0; at < line.size();) {
      const size_t begin = line.find_first_of("0123456789", at);
      if (begin == line.npos) break;
      at = std::min(line.find_first_not_of("0123456789.", begin), line.size());
      const std::string number = line.substr(begin, at - begin);
      const bool is_word = begin == 0 || line[begin - 1] == ' ' || line[begin - 1] == 'V';
      if (is_word && number.find('.') != number.npos) best = number;
    }
    return best;
  }

  ProcessJob job_of(std::vector<std::string> command) const {
    ProcessJob job;
    job.arguments = std::move(command);
    job.environment = environment_;
    job.progress = progress_;
    job.deadline = std::min(deadline_, std::chrono::steady_clock::now() + std::chrono::seconds(10));
    return job;
  }

  ProcessEnd run(std::vector<std::string> command, std::string* answer) const {
    return run_and_read(tools_.guard, job_of(std::move(command)), kMaxVersionText, answer);
  }

  std::string ask(std::vector<std::string> command, const std::string& question) {
    command.push_back(question);
    const ProcessJob job = job_of(std::move(command));
    std::string answer;
    const ProcessEnd end = run_and_read(tools_.guard, job, kMaxVersionText, &answer);
    if (end.ok()) return answer;
    if (end.kind == ProcessEnd::kCancelled) {
      reasons_->push_back(make_reason(Code::kCancelled));
    } else if (end.kind == ProcessEnd::kTimeout && job.deadline == deadline_) {
      // The build's time limit ended it, and not its own ten seconds: it may have had very little
      // time.
      reasons_->push_back(make_reason(Code::kBuildTimeout,
                                      job.arguments.front() + " still being asked for " + question +
                                          " when the build's time was over",
                                      "an end of the build in time"));
    } else {
      const std::string found =
          job.arguments.front() + ", which, asked for " + question + ", " + end.text();
      reasons_->push_back(
          hit_limit(own_limits(), end, answer, found)
              .value_or(make_reason(Code::kBuildNoCompiler, found, "a compiler that works")));
    }
    return {};
  }

  const BuildTools& tools_;
  const std::chrono::steady_clock::time_point deadline_;
  Progress* progress_;
  std::vector<Reason>* reasons_;
  std::vector<std::string> environment_;
  std::string text_;
  FieldHasher hasher_;
};

}  // namespace

std::string file_identity(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  std::string id = build_id(fd);
  if (id.empty()) id = digest_of(fd);
  close(fd);
  return id;
}

CacheMaker identify(const BuildTools& tools, const Languages& languages,
                    std::chrono::steady_clock::time_point deadline, Progress* progress,
                    std::vector<Reason>* reasons) {
  Identifier identifier(tools, deadline, progress, reasons);
  const size_t before = reasons->size();
  identifier.add_host_compiler(tools.cpp, "cc1plus");
  if (reasons->size() == before && !tools.c.empty()) identifier.add_host_compiler(tools.c, "cc1");
  if (reasons->size() == before && languages.cuda) identifier.add_nvcc();
  if (reasons->size() == before && languages.hip) identifier.add_hipcc();
  if (reasons->size() == before && languages.device_images) identifier.add_nvrtc();
  if (reasons->size() == before && languages.hip_images) identifier.add_hiprtc();
  for (const std::string& package : languages.packages)
    if (reasons->size() == before) identifier.add_package(package);
  return identifier.finish();
}

}  // namespace opdock
