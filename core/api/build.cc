// The function of opdock.h that builds a source plugin ahead of time.
// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <filesystem>

#include "api/build_archs.h"
#include "api/hooks.h"
#include "api/report.h"
#include "api/runtime.h"
#include "build/builder.h"
#include "fmt/format.h"

namespace opdock {
namespace {

// The members of `text` that BuildOptions has. False and *problem for anything else.
bool read_options(const char* text, BuildOptions* options, std::string* problem) {
  if (text == nullptr || *text == '\0') return true;
  const Report json = Report::parse(text, nullptr, false);
  if (!json.is_object()) {
    *problem = "options: found no JSON object, wanted one such as {\"jobs\": 2}";
    return false;
  }
  for (const auto& [name, value] : json.items()) {
    if (name == "cuda_archs" && value.is_string()) {
      options->cuda_archs = value.get<std::string>();
    } else if (name == "hip_archs" && value.is_string()) {
      options->hip_archs = value.get<std::string>();
    } else if (name == "debug" && value.is_boolean()) {
      options->debug = value.get<bool>();
    } else if (name == "retry" && value.is_boolean()) {
      options->retry_failed = value.get<bool>();
    } else if (name == "jobs" && value.is_number_unsigned()) {
      options->jobs = value.get<int>();
    } else if (name == "timeout" && value.is_number() && value.get<double>() > 0) {
      options->timeout_seconds = value.get<double>();
    } else {
      *problem = fmt::format(
          "options: found \"{}\": {}, wanted cuda_archs or hip_archs (texts), debug or retry "
          "(true or false), jobs or timeout (positive numbers)",
          name, value.dump());
      return false;
    }
  }
  return true;
}

std::optional<Manifest> read_plugin(const std::string& path, std::string* problem) {
  namespace fs = std::filesystem;
  std::error_code failed;
  fs::path file = fs::absolute(path, failed);
  if (fs::is_directory(file, failed)) file /= "plugin.toml";
  std::vector<std::string> errors;
  std::optional<Manifest> manifest = read_manifest(file.lexically_normal(), &errors);
  for (const std::string& error : errors) *problem += (problem->empty() ? "" : "\n") + error;
  return manifest;
}

Report build(opdock_runtime* runtime, const Manifest& manifest, const BuildOptions& wanted) {
  std::vector<Reason> reasons;
  BuildOptions options = wanted;
  const Settings& settings = runtime->settings();
  const ArchSettings lists{settings.cuda_archs.value, settings.cuda_archs.place,
                           settings.hip_archs.value, settings.hip_archs.place};
  Report json;
  json["plugin"] = manifest.name;
  json["version"] = manifest.version;
  json["folder"] = manifest.folder().string();
  json["changed"] = Report::array();
  BuildResult result;
  const auto begin = std::chrono::steady_clock::now();
  if (decide_archs(manifest, lists, *runtime->machine(), true, &options, &reasons)) {
    Cache* const cache = runtime->cache(&reasons);
    json["changed"] = cache->what_changed(build_request(manifest, options));
    HookedProgress progress(runtime->hooks());
    const Waiting waiting(runtime->hooks());
    result = build_plugin(manifest, options, cache, &progress, &reasons);
    progress.finish("");
  }
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
  json["cuda_archs"] = options.cuda_archs;
  json["hip_archs"] = options.hip_archs;
  json["path"] = result.entry ? Report(result.plugin) : Report();
  json["built"] = result.built;
  json["by"] = result.entry ? Report(result.entry->maker().text) : Report();
  json["seconds"] = time.count();
  json["log"] = result.log_path.empty() ? Report() : Report(result.log_path);
  json["reasons"] = to_json(reasons);
  return json;
}

}  // namespace
}  // namespace opdock

opdock_status opdock_build_json(opdock_runtime* runtime, const char* path, const char* options,
                                char** out, char* error, uint32_t error_size) {
  if (runtime == nullptr || path == nullptr) {
    return opdock::fail(OPDOCK_INVALID_ARGUMENT, "found NULL, wanted a runtime and a path", error,
                        error_size);
  }
  std::string problem;
  opdock::BuildOptions wanted;
  wanted.trusted = true;
  if (!opdock::read_options(options, &wanted, &problem)) {
    return opdock::fail(OPDOCK_INVALID_ARGUMENT, problem, error, error_size);
  }
  const std::optional<opdock::Manifest> manifest = opdock::read_plugin(path, &problem);
  if (!manifest) return opdock::fail(OPDOCK_INVALID_ARGUMENT, problem, error, error_size);
  return opdock::report([&] { return opdock::build(runtime, *manifest, wanted); }, out, error,
                        error_size);
}
