// SPDX-License-Identifier: Apache-2.0
#include "build/builder.h"

#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <filesystem>
#include <optional>

#include "base/files.h"
#include "build/limits.h"
#include "build/project.h"
#include "build/ptx_fallback.h"
#include "build/result.h"
#include "build/sources.h"
#include "build/steps.h"
#include "build/time_limit.h"
#include "build/toolchain_check.h"
#include "build/tools.h"
#include "build/triage.h"
#include "discover/catalog.h"
#include "fmt/format.h"
#include "trust/trust.h"

namespace opdock {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxAttempts = 3;  // while the source or the compilers change during the build
// This many failures of other processes, for reasons that may pass, are waited through; then this
// process fails as they did.
constexpr int kMaxFailures = 2;

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
        limit_(progress, options.timeout_seconds) {}

  BuildResult run() {
    if (!may_build() || !read_request(manifest_, cache_, &request_)) return {};
    const std::vector<std::string> changed = cache_->what_changed(request_);
    BuildResult result = run_attempts();
    result.changed = changed;
    return result;
  }

 private:
  BuildResult run_attempts() {
    std::vector<Reason> missing;
    tools_ = find_build_tools(languages_, &missing);
    // Without tools nobody knows which compiler would build the plugin, so a result of any compiler
    // will do.
    if (!missing.empty()) {
      BuildResult found = take_first(cache_->find(request_, nullptr, reasons_));
      if (!found.entry) reasons_->insert(reasons_->end(), missing.begin(), missing.end());
      return found;
    }
    if (options_.retry_failed) cache_->forget_failure(request_);
    for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
      changed_.reset();
      log_.clear();
      const size_t before = reasons_->size();
      maker_ = identify(tools_, languages_, limit_.deadline(), progress_, reasons_);
      if (reasons_->size() != before) return {};
      BuildResult result = find_or_make();
      if (!changed_) return result;
      if (!read_request(manifest_, nullptr, &request_)) return {};
    }
    reasons_->push_back(*changed_);
    return {};
  }

  bool read_request(const Manifest& manifest, Cache* cache, CacheRequest* out) {
    const size_t before = reasons_->size();
    std::optional<CacheRequest> request =
        build_request(manifest, options_, cache, &limit_, reasons_);
    limit_.explain(reasons_, before, "the plugin's files were being read");
    if (request) *out = *std::move(request);
    return request.has_value();
  }

  bool may_build() {
    if (getauxval(AT_SECURE) != 0) {
      reasons_->push_back(make_reason(Code::kBuildPrivileged));
      return false;
    }
    if (cache_ == nullptr || cache_->folder().empty()) {
      reasons_->push_back(make_reason(Code::kBuildNoCache));
      return false;
    }
    // The tools get /dev/null as their input and open it themselves; without it, each would fail
    // with a message of its own.
    const Fd null(open("/dev/null", O_RDWR | O_CLOEXEC));
    struct stat status{};
    if (!null || fstat(null.get(), &status) != 0 || !S_ISCHR(status.st_mode)) {
      reasons_->push_back(make_reason(Code::kBuildDevNull,
                                      "no /dev/null that can be read and written", "the device"));
      return false;
    }
    if (options_.trusted) return true;
    trust_.emplace(read_search_environment());
    const std::string folder = manifest_.folder().string();
    const std::optional<Reason> reason = trust_->check_path(folder).reason;
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

  // Returns what exactly these compilers have built, or the remembered reason why they could not.
  std::optional<BuildResult> find_made() {
    for (const std::shared_ptr<CacheEntry>& entry : cache_->find(request_, &maker_, reasons_)) {
      if (entry->maker().id == maker_.id) return take(entry);
    }
    BuildResult result;
    std::optional<std::vector<Reason>> failure =
        cache_->failure(request_, maker_, &result.log_path);
    if (!failure || std::any_of(failure->begin(), failure->end(), opdock::is_passing))
      return std::nullopt;
    reasons_->push_back(make_reason(Code::kBuildRemembered, "a build that failed before",
                                    "another source, option or compiler"));
    reasons_->insert(reasons_->end(), failure->begin(), failure->end());
    return result;
  }

  BuildResult find_or_make() {
    if (std::optional<BuildResult> made = find_made()) return *made;
    if (!toolchain_fits()) return {};
    std::unique_ptr<CacheLock> lock;
    for (int failures = 0;;) {
      const size_t before = reasons_->size();
      lock = cache_->lock(request_, maker_, &limit_, reasons_);
      limit_.explain(reasons_, before, "another process was still building it");
      if (!lock) return {};
      if (std::optional<BuildResult> made = find_made()) return *made;
      if (lock->is_turn()) break;
      if (cache_->failure(request_, maker_, nullptr) && ++failures == kMaxFailures)
        return give_up();
    }
    const std::optional<std::string> folder = cache_->make_folder(reasons_);
    if (!folder) return {};
    BuildResult result = make_in(*folder);
    cache_->discard_folder(*folder);
    return result;
  }

  // Fails because other processes have tried and failed, one after another, while this one waited.
  // On a machine that has no memory for a compiler it does not help if every process tries.
  BuildResult give_up() {
    BuildResult result;
    reasons_->push_back(make_reason(Code::kBuildWaited,
                                    fmt::format("{} attempts of others that failed", kMaxFailures),
                                    "one that succeeds"));
    const std::optional<std::vector<Reason>> failure =
        cache_->failure(request_, maker_, &result.log_path);
    if (failure) reasons_->insert(reasons_->end(), failure->begin(), failure->end());
    return result;
  }

  bool toolchain_fits() {
    const ToolchainFacts facts = ask_toolchain(manifest_, options_, tools_);
    BuildCheck check = check_toolchain(manifest_, options_, facts);
    warnings_ = std::move(check.warnings);
    ptx_fallback_ = ptx_fallback_text(tools_, languages_, facts, warnings_);
    for (const Reason& warning : warnings_) log_ += "opdock: warning: " + to_text(warning) + "\n";
    reasons_->insert(reasons_->end(), check.errors.begin(), check.errors.end());
    return check.errors.empty();
  }

  BuildResult make_in(const std::string& folder) {
    const ProjectFolders folders(folder);
    if (!copy(folders)) return {};
    std::vector<Reason> why;
    const bool built =
        write_project(folders, manifest_, options_, tools_, &why) &&
        run_steps({manifest_, options_, tools_, languages_, folders, limit_.deadline(), progress_},
                  &log_, &why);
    const bool stopped = has_code(why, Code::kCancelled);
    // The outcome counts for nothing if the compilers were replaced during the build.
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

  // Copies the sources and checks that the copy matches the request, because the copy is what is
  // built and what the key must describe.
  bool copy(const ProjectFolders& folders) {
    if (progress_ != nullptr) progress_->step("building " + manifest_.name + ": configuring", 0);
    const std::string source = manifest_.folder().string();
    const size_t before = reasons_->size();
    std::vector<SourceFile> files;
    const bool copied =
        list_sources(manifest_, &limit_, &files, reasons_) &&
        copy_sources(source, files, folders.plugin, trust_ ? &*trust_ : nullptr, &limit_, reasons_);
    limit_.explain(reasons_, before, "the plugin's files were being copied");
    if (!copied) return false;
    Manifest copy = manifest_;
    copy.path = fs::path(folders.plugin) / manifest_.path.filename();
    CacheRequest request;
    if (!read_request(copy, nullptr, &request)) return false;
    if (request.fields == request_.fields) return true;
    changed_ = make_reason(Code::kSourceChanged, "files of " + source + " that changed",
                           "source that stays as it is while it is copied");
    return false;
  }

  bool has_other_compilers() {
    std::vector<Reason> ignored;
    const CacheMaker now = identify(tools_, languages_, limit_.deadline(), nullptr, &ignored);
    if (ignored.empty() && now.id == maker_.id) return false;
    changed_ = make_reason(Code::kToolchainChanged, now.text, maker_.text + ", as at the start");
    return true;
  }

  BuildResult publish(const std::string& folder, const fs::path& made) {
    std::vector<std::string> files = {made.filename().string(), "build.log"};
    int error = write_whole(folder + "/build.log", log_);
    if (!ptx_fallback_.empty()) {
      files.push_back(kPtxFallbackFile);
      if (error == 0) error = write_whole(folder + "/" + kPtxFallbackFile, ptx_fallback_);
    }
    if (error == 0 && rename(made.c_str(), (folder + "/" + files.front()).c_str()) != 0)
      error = errno;
    if (error != 0) {
      return fail({cannot_write(folder, error, Code::kBuildNoCache, "a result that is kept")},
                  false);
    }
    BuildResult result = take(cache_->publish_folder(request_, maker_, folder, files, reasons_));
    result.built = result.entry != nullptr;
    result.warnings = warnings_;
    // By now the sources are old enough for their digests to be remembered for the next process.
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
  TimeLimit limit_;
  std::optional<Trust> trust_;  // absent: the caller vouched for the folder
  BuildTools tools_;
  CacheRequest request_;
  CacheMaker maker_;
  std::string log_, ptx_fallback_;
  std::vector<Reason> warnings_;
  std::optional<Reason> changed_;  // the change during the attempt, which is then repeated
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
        check_toolchain(manifest, options, ask_toolchain(manifest, options, tools));
    against.insert(against.end(), check.errors.begin(), check.errors.end());
  } catch (const std::exception& problem) {
    against.push_back(make_reason(Code::kBuildFailed, problem.what(), "no failure of the builder"));
  }
  return against;
}

}  // namespace opdock
