// The chain's third step: source plugins, from the cache or built now.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <set>

#include "base/files.h"
#include "base/mutex.h"
#include "base/texts.h"
#include "build/builder.h"
#include "build/ptx_fallback.h"
#include "build/tools.h"
#include "build/triage.h"
#include "cache/cache.h"
#include "chain/build_archs.h"
#include "chain/chain.h"
#include "fmt/format.h"
#include "schema/dtype.h"

namespace opdock {
namespace {

using SourcePtr = std::shared_ptr<const SourcePlugin>;
using EntryPtr = std::shared_ptr<CacheEntry>;

// The cache entries that plugins were loaded from. They are not evicted while this process lives.
struct PinnedEntries {
  Mutex mutex;
  std::set<EntryPtr> entries;
};
PinnedEntries& pinned_entries = *new PinnedEntries;

void pin(EntryPtr entry) {
  const std::lock_guard lock(pinned_entries.mutex);
  pinned_entries.entries.insert(std::move(entry));
}

bool decide(const SourcePlugin& source, opdock_runtime* runtime, bool ahead_of_time,
            BuildOptions* options, std::vector<Reason>* reasons) {
  const Settings& settings = runtime->settings();
  const ArchSettings lists{settings.cuda_archs.value, settings.cuda_archs.place,
                           settings.hip_archs.value, settings.hip_archs.place};
  return decide_archs(*source.manifest, lists, *runtime->machine(), ahead_of_time, options,
                      reasons);
}

std::string describe(const SourcePlugin& source) {
  return source.manifest->name + " " + source.manifest->version + " (" + source.folder + ")";
}

// Returns whether the reason helps to explain a failure. Notices of discovery do not; those of the
// cache, the run-time compiler and the build do: no usable cache, a remembered failure.
bool explains_failure(const Reason& reason) {
  const CodeInfo& code = info(reason.code);
  return code.severity != Severity::kNotice || code.stage == "cache" || code.stage == "jit" ||
         code.stage == "build";
}

class BuildStep {
 public:
  BuildStep(opdock_runtime* runtime, const ChainRequest& wanted, bool dry, HookedProgress* progress,
            ChainRecord* record)
      : runtime_(runtime), wanted_(wanted), dry_(dry), progress_(progress), record_(record) {
    step_.kind = ChainStep::Kind::kBuild;
    step_.outcome = ChainStep::Outcome::kFailed;
  }

  void take() {
    const std::vector<SourcePtr> sources = runtime_->catalog()->source_providers(wanted_.name);
    step_.text = "none could be built";
    if (sources.empty()) {
      step_.outcome = ChainStep::Outcome::kSkipped;
      step_.text = "no source plugin provides it";
    }
    for (const SourcePtr& source : sources) {
      std::vector<Reason> reasons;
      step_.changed.clear();
      outdated_.clear();
      const bool served = try_source(*source, &reasons);
      if (served) {
        step_.outcome = ChainStep::Outcome::kUsed;
        break;
      }
      const bool stopped =
          has_code(reasons, Code::kCancelled) || has_code(reasons, Code::kWithinItself);
      for (Reason& reason : reasons) {
        if (!explains_failure(reason)) continue;
        step_.reasons.push_back(reason_of(*source, std::move(reason)));
      }
      if (stopped) break;
    }
    record_->steps.push_back(std::move(step_));
  }

 private:
  // Returns true if the plugin serves or, in a dry run, would serve.
  bool try_source(const SourcePlugin& source, std::vector<Reason>* reasons) {
    if (source.state == State::kRejected) {
      reasons->insert(reasons->end(), source.reasons.begin(), source.reasons.end());
      return false;
    }
    if (!check_declaration(source, reasons)) return false;
    if (read_file(source.manifest->path) != source.manifest->text) {
      reasons->push_back(
          {Code::kSourceChanged,
           source.manifest->path.string() + ", changed or gone since it was listed",
           "the declaration that the op was looked up by",
           "look at the folders again (opdock.plugins(rescan=True), or start anew)"});
      return false;
    }
    Cache* cache = runtime_->cache(reasons);
    BuildOptions options;
    options.trusted = !source.needs_trust;
    options.must_run_here = wanted_.device.type != OPDOCK_CPU;
    // A first use waits for the build, so it compiles only for this machine's CPU level.
    if (has_simd_code(*source.manifest)) options.cpu_level = runtime_->machine()->cpu_level;
    if (!decide(source, runtime_, false, &options, reasons)) return false;
    const std::optional<CacheRequest> request = read_request(source, options, cache, reasons);
    if (!request) return false;
    if (find_built(source, options, *request, cache, reasons)) return true;
    // Plugins that `opdock build` has built are accepted too. It always compiles for all levels of
    // x86-64 and, without a GPU here, makes images for the compilers' default architectures; a
    // first use does neither.
    std::vector<BuildOptions> others;
    if (options.cpu_level != 0) others.emplace_back(options).cpu_level = 0;
    BuildOptions ahead = options;
    ahead.cpu_level = 0;
    std::vector<Reason> reasons_before;
    if (decide(source, runtime_, true, &ahead, &reasons_before) &&
        (ahead.cuda_archs != options.cuda_archs || ahead.hip_archs != options.hip_archs))
      others.push_back(ahead);
    for (const BuildOptions& other : others) {
      const std::optional<CacheRequest> its = read_request(source, other, cache, reasons);
      if (!its) return false;
      if (find_built(source, other, *its, cache, reasons)) return true;
    }
    if (step_.changed.empty()) step_.changed = cache->what_changed(*request);
    const Setting& policy = runtime_->settings().build;
    if (policy.value == "never") {
      reasons->push_back(make_reason(Code::kBuildPolicy,
                                     fmt::format("build = \"never\" ({})", policy.place),
                                     "build = \"auto\""));
      return false;
    }
    if (dry_) return may_build(source, options, reasons);
    return build(source, options, cache, reasons) || use_outdated(source, options, cache, reasons);
  }

  // Reads the plugin's files, unless they look as they did when they were last read.
  std::optional<CacheRequest> read_request(const SourcePlugin& source, const BuildOptions& options,
                                           Cache* cache, std::vector<Reason>* reasons) {
    const Waiting waiting(runtime_->hooks());
    return build_request(*source.manifest, options, cache, progress_, reasons);
  }

  bool find_built(const SourcePlugin& source, const BuildOptions& options,
                  const CacheRequest& request, Cache* cache, std::vector<Reason>* reasons) {
    std::vector<EntryPtr> entries = cache->find(request, nullptr, reasons);
    // Prefer images made for the GPU itself to PTX that stands in for them.
    std::stable_partition(entries.begin(), entries.end(),
                          [](const EntryPtr& entry) { return !has_ptx_fallback(*entry); });
    const bool may_build = runtime_->settings().build.value != "never";
    for (const EntryPtr& entry : entries) {
      if (may_build) {
        if (std::optional<std::string> newer =
                newer_compiler(*source.manifest, options, *entry, cache, !dry_)) {
          step_.changed = {*std::move(newer)};
          if (!dry_) {
            outdated_.push_back(entry);
            continue;
          }
        }
      }
      if (use_cached(source, entry, reasons)) return true;
    }
    return false;
  }

  bool use_cached(const SourcePlugin& source, const EntryPtr& entry, std::vector<Reason>* reasons) {
    if (!use(source, entry, entry->folder() + "/" + source.manifest->name + ".so", reasons))
      return false;
    step_.text =
        fmt::format("{}, in the cache, built by {}", describe(source), entry->maker().text);
    return true;
  }

  // Uses the PTX that was to be replaced, as it is better than nothing if the newer compiler fails.
  // The replacement is not tried again until a compiler changes, unless the failure may be
  // temporary.
  bool use_outdated(const SourcePlugin& source, const BuildOptions& options, Cache* cache,
                    std::vector<Reason>* reasons) {
    const bool may_pass = std::any_of(reasons->begin(), reasons->end(), [](const Reason& reason) {
      return reason.code == Code::kCancelled || is_passing(reason);
    });
    for (const EntryPtr& entry : outdated_) {
      std::vector<Reason> why;
      if (!use_cached(source, entry, &why)) continue;
      if (!may_pass) accept_ptx_fallback(*source.manifest, options, *entry, cache);
      for (Reason& reason : *reasons) step_.reasons.push_back(reason_of(source, std::move(reason)));
      return true;
    }
    return false;
  }

  bool check_declaration(const SourcePlugin& source, std::vector<Reason>* reasons) {
    for (const DeviceVerdict& device : source.devices) {
      const bool is_wanted = static_cast<int32_t>(device.backend) == wanted_.device.type &&
                             device.index == wanted_.device.index;
      for (const Reason& reason : device.reasons)
        if (is_wanted && reason.code == Code::kArchBelowLeast) reasons->push_back(reason);
    }
    const std::string type(to_text(static_cast<Backend>(wanted_.device.type)));
    for (const OpDecl& op : source.manifest->ops) {
      if (op.name != wanted_.op) continue;
      if (op.schema != wanted_.schema) {
        reasons->push_back(make_reason(Code::kSchemaDiffers, op.schema, wanted_.schema));
      }
      if (std::find(op.devices.begin(), op.devices.end(), type) == op.devices.end()) {
        reasons->push_back(
            make_reason(Code::kDeviceNotServed, "an op for " + join(op.devices), type));
      }
    }
    return reasons->empty();
  }

  // Checks the built file as any plugin is checked, and loads it.
  bool use(const SourcePlugin& source, const EntryPtr& entry, const std::string& path,
           std::vector<Reason>* reasons) {
    const std::shared_ptr<const Candidate> candidate =
        examine(path, *runtime_->machine(), Depth::kJudge);
    if (!candidate->file.note || candidate->file.note->name != source.manifest->name) {
      reasons->insert(reasons->end(), candidate->verdict.reasons.begin(),
                      candidate->verdict.reasons.end());
      return false;
    }
    std::vector<Reason> why = reasons_against(*candidate, wanted_);
    const bool compile = !why.empty() && can_compile(*candidate, wanted_);
    if (dry_) {
      if (why.empty() || (compile && jit_denied(runtime_).empty())) return true;
      reasons->insert(reasons->end(), why.begin(), why.end());
      return false;
    }
    if (why.empty() || compile) {
      pin(entry);
      why.clear();
      record_->target = load_target(candidate, wanted_, runtime_, compile, progress_, &why);
    }
    reasons->insert(reasons->end(), why.begin(), why.end());
    return record_->target != nullptr;
  }

  // Returns what is known before a build: whether its tools are installed.
  bool may_build(const SourcePlugin& source, const BuildOptions& options,
                 std::vector<Reason>* reasons) {
    if (runtime_->search().environment.secure) {
      reasons->push_back(make_reason(Code::kBuildPrivileged));
      return false;
    }
    std::vector<Reason> missing;
    find_build_tools(languages_of(*source.manifest, options), &missing);
    reasons->insert(reasons->end(), missing.begin(), missing.end());
    step_.text = missing.empty() ? describe(source) + " would be built" : "none can be built here";
    return missing.empty();
  }

  bool build(const SourcePlugin& source, const BuildOptions& options, Cache* cache,
             std::vector<Reason>* reasons) {
    const auto begin = std::chrono::steady_clock::now();
    const BuildResult result = build_plugin(*source.manifest, options, cache, progress_, reasons);
    if (result.entry == nullptr) {
      progress_->finish(source.manifest->name + " could not be built");
      if (!result.log_path.empty()) {
        step_.text = source.manifest->name + " could not be built, see " + result.log_path;
      }
      return false;
    }
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const std::string what = fmt::format("built {} in {:.1f} s", source.manifest->name, seconds);
    progress_->finish(what);
    if (!use(source, result.entry, result.plugin, reasons)) {
      step_.text = what + ", but it cannot be used";
      return false;
    }
    step_.text = fmt::format("{}, {} by {}", describe(source),
                             result.built ? fmt::format("built in {:.1f} s", seconds) : "built",
                             result.entry->maker().text);
    // The plugin serves, but combinations that may be incompatible are still reported.
    for (const Reason& warning : result.warnings)
      step_.reasons.push_back(reason_of(source, warning));
    return true;
  }

  opdock_runtime* runtime_;
  const ChainRequest& wanted_;
  const bool dry_;
  HookedProgress* progress_;
  ChainRecord* record_;
  ChainStep step_{};
  std::vector<EntryPtr> outdated_;  // the source's entries that a newer compiler here can improve
};

}  // namespace

StepReason reason_of(const SourcePlugin& source, Reason reason) {
  std::string plugin;
  if (source.manifest) plugin = source.manifest->name + " " + source.manifest->version;
  return {plugin, source.folder, std::move(reason)};
}

void take_build_step(opdock_runtime* runtime, const ChainRequest& wanted, bool dry,
                     HookedProgress* progress, ChainRecord* record) {
  BuildStep(runtime, wanted, dry, progress, record).take();
}

}  // namespace opdock
