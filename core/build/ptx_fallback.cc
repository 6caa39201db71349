// SPDX-License-Identifier: Apache-2.0
#include "build/ptx_fallback.h"

#include <sys/auxv.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/files.h"
#include "cache/stamps.h"
#include "facts/environment.h"
#include "fmt/format.h"
#include "jit/nvrtc_files.h"
#include "jit/nvrtc_memo.h"

namespace opdock {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

using Paths = std::set<std::string>;

struct PtxFallback {
  size_t gpus = 0;  // number of architectures that got PTX, counted once for each compiler
  std::string by;   // the compilers that did not know them
  Paths paths;      // files of these compilers
  std::set<std::string> ids;
};

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

void add_real(const fs::path& path, Paths* paths) {
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  if (!error && is_file(real)) paths->insert(real.string());
}

std::set<std::string> ids_of(const Paths& paths) {
  std::set<std::string> ids;
  for (const std::string& path : paths) ids.insert(file_identity(path));
  return ids;
}

size_t count_ptx(const std::vector<Reason>& reasons) {
  return static_cast<size_t>(
      std::count_if(reasons.begin(), reasons.end(),
                    [](const Reason& reason) { return reason.code == Code::kArchPtx; }));
}

std::string versions_of(const ToolchainFacts& facts) {
  std::string text;
  const auto add = [&](const char* name, const Version& version) {
    if (!version.empty())
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, version.text());
  };
  add("nvcc", facts.nvcc.version);
  for (const NvrtcKnowledge& one : facts.nvrtcs) add("NVRTC", one.version);
  return text;
}

std::optional<PtxFallback> read_ptx_fallback(const CacheEntry& entry) {
  const std::optional<std::string> text = read_file(entry.folder() + "/" + kPtxFallbackFile);
  if (!text) return std::nullopt;
  const json data = json::parse(*text, nullptr, /*allow_exceptions=*/false);
  // The entry's digest was right, so another version of Opdock wrote this file. Its build is used.
  if (!data.is_object()) return std::nullopt;
  PtxFallback out;
  try {
    out.gpus = data.at("gpus").get<size_t>();
    out.by = data.at("by").get<std::string>();
    for (const json& one : data.at("files")) {
      out.paths.insert(one.at("path").get<std::string>());
      out.ids.insert(one.at("id").get<std::string>());
    }
  } catch (const json::exception&) {
    return std::nullopt;
  }
  return out;
}

// Returns the compilers' files that a build would find now. *tested gets the paths whose existence
// decided that.
Paths compilers_here(const std::string& nvcc, const std::vector<std::string>& nvrtc_folders,
                     const Languages& languages, std::vector<std::string>* tested) {
  Paths paths;
  if (languages.cuda && !nvcc.empty()) {
    add_real(nvcc, &paths);
    for (const std::string& part : nvcc_parts(nvcc)) add_real(part, &paths);
  }
  if (languages.device_images) {
    for (const std::string& path :
         find_nvrtc_paths(nvrtc_folders, current_environment(), nullptr, tested))
      add_real(path, &paths);
  }
  return paths;
}

// Compares the compilers here with those that made an entry, and keeps a memo if there is none that
// is new and of use. The memo holds while the surroundings, the places that were searched, and the
// files stay as they were.
class CompilerComparison {
 public:
  CompilerComparison(const Manifest& manifest, const BuildOptions& options, const CacheEntry& entry,
                     Cache* cache)
      : cache_(cache),
        languages_(languages_of(manifest, options)),
        nvcc_(languages_.cuda ? find_nvcc() : std::string()),
        name_("compilers " + entry.key() + " " + entry.maker().id),
        value_(surroundings()) {}

  bool is_settled() const {
    const std::optional<std::string> memo = cache_->recall(name_);
    return memo && Stamps::from_memo("/", *memo) == value_;
  }

  // Searches for compilers. Returns false if there is none at all, or none but those of `then`.
  bool look(const PtxFallback& then) {
    std::vector<std::string> tested;
    paths_ = compilers_here(nvcc_, compiler_folders(), languages_, &tested);
    if (!paths_.empty()) {
      for (const std::string& path : then.paths) add_real(path, &paths_);
    }
    for (const std::string& path : paths_) stamps_.add(path.substr(1));
    std::set<std::string> places;
    for (const std::string& path : tested) places.insert(nearest_existing(path));
    for (const std::string& path : places) stamps_.add(path.substr(1));
    return !paths_.empty() && ids_of(paths_) != then.ids;
  }

  // Writes the memo. To be called after look().
  void settle() {
    if (const std::optional<std::string> memo = stamps_.to_memo(value_))
      cache_->remember(name_, *memo);
  }

 private:
  // Returns everything in this process that decides where compilers are searched.
  std::string surroundings() const {
    return pack_texts({nvcc_, nvrtc_surroundings(compiler_folders(), current_environment())});
  }

  Cache* cache_;
  const Languages languages_;
  const std::string nvcc_, name_, value_;
  Stamps stamps_{"/"};  // started before anything is read
  Paths paths_;
};

}  // namespace

bool has_ptx_fallback(const CacheEntry& entry) {
  return is_file(entry.folder() + "/" + kPtxFallbackFile);
}

std::string ptx_fallback_text(const BuildTools& tools, const Languages& languages,
                              const ToolchainFacts& facts, const std::vector<Reason>& warnings) {
  const size_t gpus = count_ptx(warnings);
  if (gpus == 0) return {};
  Paths paths = compilers_here(tools.nvcc, tools.nvrtc_folders, languages, nullptr);
  // If nvcc is a script that calls the real nvcc, a new toolkit leaves the script unchanged, so the
  // real one's parts are recorded too.
  for (const std::string& part : nvcc_parts(facts.nvcc.toolkit + "/bin/nvcc"))
    add_real(part, &paths);
  json files = json::array();
  for (const std::string& path : paths)
    files.push_back({{"path", path}, {"id", file_identity(path)}});
  const json data = {{"gpus", gpus}, {"by", versions_of(facts)}, {"files", files}};
  return data.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

std::optional<std::string> newer_compiler(const Manifest& manifest, const BuildOptions& options,
                                          const CacheEntry& entry, Cache* cache, bool may_start) {
  const std::optional<PtxFallback> then = read_ptx_fallback(entry);
  if (!then || getauxval(AT_SECURE) != 0) return std::nullopt;
  CompilerComparison comparison(manifest, options, entry, cache);
  if (comparison.is_settled()) return std::nullopt;
  if (!comparison.look(*then)) {
    comparison.settle();
    return std::nullopt;
  }
  if (!may_start) {
    return fmt::format(
        "toolkit: found others than {}, which gave a GPU here PTX: they are asked "
        "whether they know it when the op is used",
        then->by);
  }
  std::vector<Reason> missing;
  const BuildTools tools = find_build_tools(languages_of(manifest, options), &missing);
  if (!missing.empty()) return std::nullopt;
  const ToolchainFacts facts = ask_toolchain(manifest, options, tools);
  const BuildCheck check = check_toolchain(manifest, options, facts);
  if (check.errors.empty() && count_ptx(check.warnings) < then->gpus) {
    return fmt::format("toolkit: found {}, which knows a GPU here, was {}, which gave it PTX",
                       versions_of(facts), then->by);
  }
  comparison.settle();
  return std::nullopt;
}

void accept_ptx_fallback(const Manifest& manifest, const BuildOptions& options,
                         const CacheEntry& entry, Cache* cache) {
  const std::optional<PtxFallback> then = read_ptx_fallback(entry);
  if (!then) return;
  CompilerComparison comparison(manifest, options, entry, cache);
  comparison.look(*then);
  comparison.settle();
}

}  // namespace opdock
