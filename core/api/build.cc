// The function of opdock.h that builds source plugins ahead of time: one, or all that are found.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>

#include "arch/cuda_list.h"
#include "arch/rocm_list.h"
#include "base/files.h"
#include "base/status.h"
#include "build/builder.h"
#include "chain/build_archs.h"
#include "chain/hooks.h"
#include "chain/runtime.h"
#include "fmt/format.h"
#include "opdock/types.hpp"
#include "report/report.h"

namespace opdock {
namespace {

// Reads the JSON object `text` into *options. Fails for an unknown member or a value of a wrong
// type.
Status read_options(const char* text, BuildOptions* options) {
  if (text == nullptr || *text == '\0') return {};
  const Report json = Report::parse(text, nullptr, false);
  if (!json.is_object()) {
    return {OPDOCK_INVALID_ARGUMENT,
            "options: found no JSON object, wanted one such as {\"jobs\": 2}"};
  }
  const auto is_count = [](const Report& value) {
    return value.is_number_unsigned() && value.get<uint64_t>() > 0 &&
           value.get<uint64_t>() <= std::numeric_limits<int>::max();
  };
  for (const auto& [name, value] : json.items()) {
    if (name == "cuda_archs" && value.is_string()) {
      options->cuda_archs = value.get<std::string>();
    } else if (name == "hip_archs" && value.is_string()) {
      options->hip_archs = value.get<std::string>();
    } else if (name == "debug" && value.is_boolean()) {
      options->debug = value.get<bool>();
    } else if (name == "retry" && value.is_boolean()) {
      options->retry_failed = value.get<bool>();
    } else if (name == "jobs" && is_count(value)) {
      options->jobs = value.get<int>();
    } else if (name == "timeout" && value.is_number() && value.get<double>() > 0) {
      options->timeout_seconds = value.get<double>();
    } else {
      return {
          OPDOCK_INVALID_ARGUMENT,
          fmt::format("options: found \"{}\": {}, wanted cuda_archs or hip_archs (texts), debug "
                      "or retry (true or false), jobs (a whole number from 1) or timeout (a "
                      "positive number)",
                      name, value.dump())};
    }
  }
  return {};
}

// Returns the plugin.toml for `path`, which names the file itself or its folder.
std::filesystem::path manifest_at(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code failed;
  const fs::path file = fs::absolute(path, failed);
  return (fs::is_directory(file, failed) ? file / "plugin.toml" : file).lexically_normal();
}

// Parses the lists even if no plugin has a device for them, so that a misspelt list is always
// reported.
bool check_lists(const BuildOptions& wanted, std::vector<Reason>* reasons) {
  Reason reason{};
  const auto is_given = [](const std::string& list) {
    return list.find_first_not_of(" \t\r\n") != list.npos;
  };
  if ((is_given(wanted.cuda_archs) && !parse_cuda_list(wanted.cuda_archs, "--archs", &reason)) ||
      (is_given(wanted.hip_archs) && !parse_rocm_list(wanted.hip_archs, "--hip-archs", &reason))) {
    reasons->push_back(std::move(reason));
    return false;
  }
  return true;
}

// One plugin, with the architectures that it is built for.
class BuildJob {
 public:
  BuildJob(opdock_runtime* runtime, const Manifest& manifest, const BuildOptions& wanted)
      : runtime_(runtime), manifest_(manifest), wanted_(wanted), options_(wanted) {}

  // Decides the architectures. Returns false, with a reason in the report, if no build can start.
  bool decide() {
    const Settings& settings = runtime_->settings();
    const ArchSettings lists{settings.cuda_archs.value, settings.cuda_archs.place,
                             settings.hip_archs.value, settings.hip_archs.place};
    return check_lists(wanted_, &reasons_) &&
           decide_archs(manifest_, lists, *runtime_->machine(), true, &options_, &reasons_);
  }

  // Returns the reasons about architectures that the compilers here do not know.
  std::vector<Reason> unknown_archs() const {
    std::vector<Reason> against = check_build(manifest_, options_);
    std::erase_if(against, [](const Reason& reason) { return reason.code != Code::kBuildArch; });
    return against;
  }

  void build() {
    Cache* const cache = runtime_->cache(&reasons_);
    HookedProgress progress(runtime_->hooks());
    const Waiting waiting(runtime_->hooks());
    const auto begin = std::chrono::steady_clock::now();
    result_ = build_plugin(manifest_, options_, cache, &progress, &reasons_);
    seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    progress.finish("");
  }

  bool was_cancelled() const { return has_code(reasons_, Code::kCancelled); }
  void add_reason(Reason reason) { reasons_.push_back(std::move(reason)); }
  const Reason& reason() const { return reasons_.back(); }

  Report report() const {
    Report json;
    json["plugin"] = manifest_.name;
    json["version"] = manifest_.version;
    json["folder"] = manifest_.folder().string();
    json["outcome"] = outcome();
    json["changed"] = result_.changed;
    json["cuda_archs"] = options_.cuda_archs;
    json["hip_archs"] = options_.hip_archs;
    json["path"] = result_.entry ? Report(result_.plugin) : Report();
    json["built"] = result_.built;
    json["by"] = result_.entry ? Report(result_.entry->maker().text) : Report();
    json["seconds"] = seconds_;
    json["log"] = result_.log_path.empty() ? Report() : Report(result_.log_path);
    json["warnings"] = to_json(result_.warnings);
    json["reasons"] = to_json(reasons_);
    return json;
  }

 private:
  const char* outcome() const {
    if (result_.entry) return result_.built ? "built" : "cached";
    return is_not_asked_for() ? "skipped" : "failed";
  }

  // Returns whether only a compiler is missing, for a kind of GPU that the request does not list
  // and this machine does not have.
  bool is_not_asked_for() const {
    const std::shared_ptr<const MachineFacts> machine = runtime_->machine();
    const auto sees = [&](Backend backend) {
      return std::any_of(machine->gpus.begin(), machine->gpus.end(),
                         [&](const Gpu& gpu) { return gpu.backend == backend; });
    };
    bool is_missing = false;
    for (const Reason& reason : reasons_) {
      if (info(reason.code).severity != Severity::kReject) continue;
      const bool cuda =
          reason.code == Code::kBuildNoNvcc && wanted_.cuda_archs.empty() && !sees(Backend::kCuda);
      const bool hip =
          reason.code == Code::kBuildNoHipcc && wanted_.hip_archs.empty() && !sees(Backend::kRocm);
      if (!cuda && !hip) return false;
      is_missing = true;
    }
    return is_missing;
  }

  opdock_runtime* runtime_;
  const Manifest& manifest_;
  const BuildOptions& wanted_;
  BuildOptions options_;
  BuildResult result_;
  double seconds_ = 0;
  std::vector<Reason> reasons_;
};

// Returns the report for a folder that is not built.
Report skipped_report(const SourcePlugin& source, bool skipped,
                      const std::vector<Reason>& reasons) {
  Report json;
  json["plugin"] = source.manifest ? Report(source.manifest->name) : Report();
  json["version"] = source.manifest ? Report(source.manifest->version) : Report();
  json["folder"] = source.folder;
  json["outcome"] = skipped ? "skipped" : "failed";
  json["path"] = Report();
  json["warnings"] = Report::array();
  json["reasons"] = to_json(reasons);
  return json;
}

Report build_one(opdock_runtime* runtime, const std::filesystem::path& path,
                 const BuildOptions& wanted) {
  SourcePlugin source;
  source.folder = path.parent_path().string();
  const std::optional<Manifest> manifest = read_manifest(path, &source.reasons);
  if (!manifest) return skipped_report(source, false, source.reasons);
  BuildJob job(runtime, *manifest, wanted);
  if (job.decide()) job.build();
  return job.report();
}

Report build_all(opdock_runtime* runtime, const BuildOptions& wanted) {
  struct Item {
    std::shared_ptr<const SourcePlugin> source;
    BuildOptions wanted;
    std::unique_ptr<BuildJob> job;  // NULL: not built
    bool skipped = false;
    bool is_refused = false;  // no build can start; the job's reasons say why
  };
  std::vector<Item> items;
  // Keep the catalogue alive: a rescan replaces the runtime's.
  const std::shared_ptr<const Catalog> catalog = runtime->catalog();
  for (const auto& source : catalog->sources()) {
    Item& item = items.emplace_back(Item{source, wanted, nullptr});
    const bool is_again = has_code(source->reasons, Code::kDuplicatePlugin);
    item.skipped = is_again || has_code(source->reasons, Code::kDeselected);
    if (is_again || source->state == State::kRejected) continue;
    item.wanted.trusted = !source->needs_trust;
  }
  // Report architectures that cannot be compiled for before the first compiler starts.
  std::vector<Reason> against;
  const auto refuse = [&](const Reason& reason) {
    const bool is_known = std::any_of(against.begin(), against.end(), [&](const Reason& other) {
      return other.code == reason.code && other.found == reason.found;
    });
    if (!is_known) against.push_back(reason);
  };
  if (check_lists(wanted, &against)) {
    for (Item& item : items) {
      if (item.skipped || item.source->state == State::kRejected) continue;
      item.job = std::make_unique<BuildJob>(runtime, *item.source->manifest, item.wanted);
      if (!item.job->decide()) {
        // A list below this plugin's lowest architecture may still suit the other plugins.
        item.is_refused = item.job->reason().code == Code::kArchBelowLeast;
        if (!item.is_refused) refuse(item.job->reason());
      } else {
        for (const Reason& reason : item.job->unknown_archs()) refuse(reason);
      }
    }
  }
  Report json;
  json["plugins"] = Report::array();
  json["reasons"] = to_json(against);
  if (!against.empty()) return json;
  bool stopped = false;
  for (Item& item : items) {
    if (item.job == nullptr) {
      json["plugins"].push_back(skipped_report(*item.source, item.skipped, item.source->reasons));
      continue;
    }
    if (stopped) {
      item.job->add_reason(make_reason(Code::kCancelled));
    } else if (!item.is_refused) {
      item.job->build();
      stopped = item.job->was_cancelled();
    }
    json["plugins"].push_back(item.job->report());
  }
  return json;
}

}  // namespace
}  // namespace opdock

opdock_status opdock_build_json(opdock_runtime* runtime, const char* path, const char* options,
                                char** out, char* error, uint32_t error_size) {
  return opdock::report(
      [&] {
        opdock::need(runtime, "runtime");
        opdock::check_settings(*runtime);
        opdock::BuildOptions wanted;
        const opdock::Status read = opdock::read_options(options, &wanted);
        if (!read.ok()) throw opdock::Error(read.status, read.text);
        if (path == nullptr) return opdock::build_all(runtime, wanted);
        wanted.trusted = true;
        const std::filesystem::path manifest = opdock::manifest_at(path);
        if (!opdock::read_file(manifest)) {
          throw opdock::Error(OPDOCK_INVALID_ARGUMENT,
                              manifest.string() +
                                  ": found no readable file, wanted a plugin.toml; "
                                  "name a plugin's folder");
        }
        return opdock::build_one(runtime, manifest, wanted);
      },
      out, {error, error_size});
}
