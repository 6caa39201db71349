// SPDX-License-Identifier: Apache-2.0
#include "build/builder.h"

#include <sys/auxv.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <optional>

#include "build/log.h"
#include "build/process.h"
#include "build/project.h"
#include "build/result.h"
#include "build/sources.h"
#include "build/stand_in.h"
#include "build/step_counter.h"
#include "build/toolchain_check.h"
#include "build/tools.h"
#include "build/triage.h"
#include "discover/catalog.h"
#include "discover/trust.h"

namespace opdock {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int kMostAttempts = 3;  // while the source or the compilers change under us

bool write_file(const std::string& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  return static_cast<bool>(file);
}

bool has_code(const std::vector<Reason>& reasons, Code code) {
  return std::any_of(reasons.begin(), reasons.end(),
                     [&](const Reason& reason) { return reason.code == code; });
}

class Builder {
 public:
  Builder(const Manifest& manifest, const BuildOptions& options, Cache* cache, Progress* progress,
          std::vector<Reason>* reasons)
      : manifest_(manifest),
        options_(options),
        cache_(cache),
        progress_(progress),
        reasons_(reasons),
        languages_(languages_of(manifest, options)),
        deadline_(Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                     std::chrono::duration<double>(options.timeout_seconds))) {}

  BuildResult run() {
    if (!may_build()) return {};
    request_ = build_request(manifest_, options_, cache_);
    std::vector<Reason> missing;
    tools_ = find_build_tools(languages_, &missing);
    // Without tools nothing says who would have made it: what is there, whoever made it.
    if (!missing.empty()) {
      BuildResult found = take_first(cache_->find(request_, nullptr, reasons_));
      if (!found.entry) reasons_->insert(reasons_->end(), missing.begin(), missing.end());
      return found;
    }
    if (options_.retry_failed) cache_->forget_failure(request_);
    for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
      changed_.reset();
      log_.clear();
      const size_t before = reasons_->size();
      maker_ = identify(tools_, languages_, deadline_, progress_, reasons_);
      if (reasons_->size() != before) return {};
      BuildResult result = find_or_make();
      if (!changed_) return result;
      request_ = build_request(manifest_, options_);
    }
    reasons_->push_back(*changed_);
    return {};
  }

 private:
  bool may_build() {
    if (getauxval(AT_SECURE) != 0) {
      reasons_->push_back(make_reason(Code::kBuildPrivileged, "a program with raised privileges",
                                      "a program with the user's own"));
      return false;
    }
    if (cache_ == nullptr || cache_->folder().empty()) {
      reasons_->push_back(make_reason(Code::kBuildNoCache, "no cache", "a folder to build in"));
      return false;
    }
    if (options_.trusted) return true;
    trust_.emplace(read_search_environment());
    const std::string folder = manifest_.folder().string();
    const std::optional<Reason> reason = trust_->judge_way(folder).reason;
    if (!reason) return true;
    reasons_->push_back(make_reason(Code::kBuildUntrusted, reason->found, reason->wanted));
    return false;
  }

  BuildResult take(std::shared_ptr<CacheEntry> entry) {
    BuildResult result;
    if (!entry) return result;
    result.plugin = entry->folder() + "/" + manifest_.name + ".so";
    result.log_path = entry->folder() + "/build.log";
    result.entry = std::move(entry);
    return result;
  }

  BuildResult take_first(const std::vector<std::shared_ptr<CacheEntry>>& entries) {
    return take(entries.empty() ? nullptr : entries.front());
  }

  // What these very compilers made, or why they could not.
  std::optional<BuildResult> find_made() {
    for (const std::shared_ptr<CacheEntry>& entry : cache_->find(request_, &maker_, reasons_)) {
      if (entry->maker().id == maker_.id) return take(entry);
    }
    BuildResult result;
    std::optional<std::vector<Reason>> failure =
        cache_->failure(request_, maker_, &result.log_path);
    if (!failure || std::any_of(failure->begin(), failure->end(), is_passing)) return std::nullopt;
    reasons_->push_back(make_reason(Code::kBuildRemembered, "a build that failed before",
                                    "another source, option or compiler"));
    reasons_->insert(reasons_->end(), failure->begin(), failure->end());
    return result;
  }

  BuildResult find_or_make() {
    if (std::optional<BuildResult> made = find_made()) return *made;
    if (!check_toolchain()) return {};
    const std::unique_ptr<CacheLock> lock = cache_->lock(request_, maker_, progress_, reasons_);
    if (!lock) return {};
    if (std::optional<BuildResult> made = find_made()) return *made;
    const std::optional<std::string> folder = cache_->make_folder(reasons_);
    if (!folder) return {};
    BuildResult result = make_in(*folder);
    cache_->discard_folder(*folder);
    return result;
  }

  bool check_toolchain() {
    const ToolchainFacts facts = ask_toolchain(manifest_, options_, tools_);
    BuildCheck check = judge_toolchain(manifest_, options_, facts);
    warnings_ = std::move(check.warnings);
    stand_in_ = stand_in_text(tools_, languages_, facts, warnings_);
    for (const Reason& warning : warnings_) log_ += "opdock: warning: " + to_text(warning) + "\n";
    reasons_->insert(reasons_->end(), check.against.begin(), check.against.end());
    return check.against.empty();
  }

  BuildResult make_in(const std::string& folder) {
    const ProjectFolders folders(folder);
    if (!copy(folders)) return {};
    std::vector<Reason> why;
    const bool built =
        write_project(folders, manifest_, options_, tools_, &why) && run_steps(folders, &why);
    const bool stopped = has_code(why, Code::kCancelled);
    // Whatever came out of a toolkit that was replaced meanwhile counts for nothing.
    if (!stopped && !has_code(why, Code::kBuildTimeout) && has_other_compilers()) return {};
    if (built) {
      const fs::path made = fs::path(folders.build) / "plugins" / (manifest_.name + ".so");
      if (std::optional<Reason> wrong = check_result(made.string(), manifest_)) {
        why.push_back(*wrong);
      } else {
        return publish(folder, made);
      }
    }
    return fail(std::move(why), stopped);
  }

  // The copy is what is built, so it is what the key must be of.
  bool copy(const ProjectFolders& folders) {
    if (progress_ != nullptr) progress_->step("building " + manifest_.name + ": configuring", 0);
    std::error_code error;
    fs::create_directories(folders.plugin, error);
    const std::string source = manifest_.folder().string();
    if (!copy_sources(source, list_sources(source), folders.plugin, trust_ ? &*trust_ : nullptr,
                      reasons_)) {
      return false;
    }
    Manifest copied = manifest_;
    copied.path = fs::path(folders.plugin) / manifest_.path.filename();
    if (build_request(copied, options_).fields == request_.fields) return true;
    changed_ = make_reason(Code::kSourceChanged, "files of " + source + " that changed",
                           "source that stays as it is while it is copied");
    return false;
  }

  bool has_other_compilers() {
    std::vector<Reason> ignored;
    const CacheMaker now = identify(tools_, languages_, deadline_, nullptr, &ignored);
    if (ignored.empty() && now.id == maker_.id) return false;
    changed_ = make_reason(Code::kToolchainChanged, now.text, maker_.text + ", as at the start");
    return true;
  }

  bool run_steps(const ProjectFolders& folders, std::vector<Reason>* why) {
    StepCounter steps(manifest_.name, progress_);
    const int jobs = options_.jobs > 0 ? options_.jobs : default_jobs(languages_);
    return run_step(FailedStep::kSetup, folders, setup_command(tools_), nullptr, why) &&
           run_step(FailedStep::kCompile, folders, compile_command(tools_, jobs), &steps, why);
  }

  bool run_step(FailedStep::Phase phase, const ProjectFolders& folders,
                std::vector<std::string> command, StepCounter* steps, std::vector<Reason>* why) {
    BuildLog log;
    ProcessJob job;
    job.arguments = std::move(command);
    job.environment = build_environment(tools_, folders.temporary);
    job.folder = folders.all;
    job.deadline = deadline_;
    job.progress = progress_;
    job.on_output = [&](std::string_view piece) {
      log.add(piece);
      if (steps != nullptr) steps->add(piece);
    };
    FailedStep step;
    step.end = run_process(tools_.guard, job);
    const std::string text = log.text();
    log_ += "$";
    for (const std::string& word : job.arguments) log_ += " " + word;
    log_ += "\n" + text;
    if (step.end.ok()) return true;
    log_ += "\n" + job.arguments.front() + " " + step.end.text() + "\n";
    step.phase = phase;
    step.log = text;
    step.plugin_folder = manifest_.folder().string();
    step.copied_folder = folders.plugin;
    step.archs = options_.cuda_archs + (options_.hip_archs.empty() ? "" : " " + options_.hip_archs);
    for (const OpDecl& op : manifest_.ops) step.ops.push_back(op.name);
    if (languages_.cuda && step.end.kind == ProcessEnd::kExit) step.newest_arch = newest_arch();
    why->push_back(triage(step));
    return false;
  }

  // "12.1" of nvcc's list, whose last line is "compute_121".
  std::string newest_arch() {
    ProcessJob job;
    job.arguments = {tools_.nvcc, "--list-gpu-arch"};
    job.environment = build_environment(tools_, "/tmp");
    job.deadline = Clock::now() + std::chrono::seconds(10);
    std::string text;
    if (!run_and_read(tools_.guard, job, 4096, &text).ok()) return {};
    const size_t end = text.find_last_of("0123456789");
    const size_t begin = text.rfind('_', end);
    if (begin == text.npos || end == text.npos || end < begin + 2) return {};
    return text.substr(begin + 1, end - begin - 1) + "." + text[end];
  }

  BuildResult publish(const std::string& folder, const fs::path& made) {
    std::error_code error;
    fs::rename(made, fs::path(folder) / made.filename(), error);
    std::vector<std::string> files = {made.filename().string(), "build.log"};
    bool written = write_file(folder + "/build.log", log_);
    if (!stand_in_.empty()) {
      files.push_back(kStandInFile);
      written = write_file(folder + "/" + kStandInFile, stand_in_) && written;
    }
    if (error || !written) {
      return fail({make_reason(Code::kBuildDiskFull, "a result that could not be kept in " + folder,
                               "room for it")},
                  false);
    }
    BuildResult result = take(cache_->publish_folder(request_, maker_, folder, files, reasons_));
    result.built = result.entry != nullptr;
    result.warnings = warnings_;
    // By now the sources are old enough for their digests to be remembered, for the next process.
    if (result.built) build_request(manifest_, options_, cache_);
    return result;
  }

  BuildResult fail(std::vector<Reason> why, bool stopped) {
    BuildResult result;
    if (!stopped) {
      cache_->remember_failure(request_, maker_, why, log_);
      cache_->failure(request_, maker_, &result.log_path);
    }
    reasons_->insert(reasons_->end(), why.begin(), why.end());
    return result;
  }

  const Manifest& manifest_;
  const BuildOptions& options_;
  Cache* cache_;
  Progress* progress_;
  std::vector<Reason>* reasons_;
  const Languages languages_;
  const Clock::time_point deadline_;
  std::optional<Trust> trust_;  // absent: the folder was vouched for
  BuildTools tools_;
  CacheRequest request_;
  CacheMaker maker_;
  std::string log_, stand_in_;
  std::vector<Reason> warnings_;
  std::optional<Reason> changed_;  // what changed under us: begin again
};

}  // namespace

BuildResult build_plugin(const Manifest& manifest, const BuildOptions& options, Cache* cache,
                         Progress* progress, std::vector<Reason>* reasons) {
  try {
    return Builder(manifest, options, cache, progress, reasons).run();
  } catch (const std::exception& problem) {
    reasons->push_back(
        make_reason(Code::kBuildFailed, problem.what(), "no failure of the builder"));
    return {};
  }
}

std::vector<Reason> check_build(const Manifest& manifest, const BuildOptions& options) {
  std::vector<Reason> against;
  try {
    const BuildTools tools = find_build_tools(languages_of(manifest, options), &against);
    const BuildCheck check =
        judge_toolchain(manifest, options, ask_toolchain(manifest, options, tools));
    against.insert(against.end(), check.against.begin(), check.against.end());
  } catch (const std::exception& problem) {
    against.push_back(make_reason(Code::kBuildFailed, problem.what(), "no failure of the builder"));
  }
  return against;
}

}  // namespace opdock
