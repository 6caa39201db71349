// Makes the request for a build: the fields of its cache key.
// SPDX-License-Identifier: Apache-2.0
#include <sys/utsname.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/files.h"
#include "base/fork_aware_lock.h"
#include "base/installed.h"
#include "base/mutex.h"
#include "base/sha256.h"
#include "build/builder.h"
#include "build/sources.h"
#include "cache/stamps.h"
#include "opdock/plugin.h"

namespace opdock {
namespace {

namespace fs = std::filesystem;

// Returns what `compute` returns for a folder (nullopt if it fails), or what it returned earlier if
// everything that it read looks unchanged. cache: NULL: the value is always computed.
template <typename Compute>
std::optional<std::string> remembered(const std::string& what, const std::string& folder,
                                      Cache* cache, const Compute& compute) {
  const std::string name = what + " of " + folder;
  if (cache != nullptr) {
    const std::optional<std::string> memo = cache->recall(name);
    std::optional<std::string> value;
    if (memo) value = Stamps::from_memo(folder, *memo);
    if (value) return value;
  }
  Stamps stamps(folder);
  const std::optional<std::string> value = compute(&stamps);
  if (cache == nullptr || !value) return value;
  if (const std::optional<std::string> memo = stamps.to_memo(*value)) cache->remember(name, *memo);
  return value;
}

// Returns a digest of the names and contents of all files below `folder`.
std::string digest_of_folder(const std::string& folder, Cache* cache) {
  const auto compute = [&](Stamps* stamps) -> std::optional<std::string> {
    FieldHasher hasher;
    std::vector<std::string> names;
    std::error_code error;
    stamps->add("");
    for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end;
         at.increment(error)) {
      const std::string name = at->path().lexically_relative(folder).string();
      stamps->add(name);
      if (at->is_regular_file()) names.push_back(name);
    }
    if (error) stamps->invalidate();
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) {
      const std::optional<std::string> text = read_file(folder + "/" + name);
      hasher.add(name).add(text.value_or(""));
      if (!text) stamps->invalidate();
    }
    return to_hex(hasher.finish());
  };
  return *remembered("contents", folder, cache, compute);
}

// Returns list_sources() as name, digest, name, digest, …
std::optional<std::vector<std::string>> source_fields(const Manifest& manifest, Cache* cache,
                                                      Progress* progress,
                                                      std::vector<Reason>* reasons) {
  const auto compute = [&](Stamps* stamps) -> std::optional<std::string> {
    std::vector<SourceFile> files;
    if (!list_sources(manifest, progress, &files, reasons, stamps)) return std::nullopt;
    std::vector<std::string> texts;
    for (const SourceFile& file : files) {
      texts.push_back(file.name);
      texts.push_back(file.sha256);
    }
    return pack_texts(texts);
  };
  const std::optional<std::string> packed =
      remembered("sources", manifest.folder().string(), cache, compute);
  // Unpacking cannot fail: the text was just packed, or kept with its digest.
  return packed ? unpack_texts(*packed) : std::nullopt;
}

struct OwnDigests {
  std::string headers, vocabulary, wrapper;
};

struct KnownDigests {
  ForkAwareLock lock;  // guards the members below
  std::optional<OwnDigests> digests;
};
KnownDigests& known_digests = *new KnownDigests;

// Returns the digests of Opdock's own files. They are read once, because installed files do not
// change while a process runs.
OwnDigests own_digests(Cache* cache) {
  const ForkAwareGuard guard(&known_digests.lock);
  if (!known_digests.digests) {
    const Installed& own = installed();
    OwnDigests made{digest_of_folder(own.include + "/opdock", cache),
                    digest_of_folder(own.device + "/opdock", cache),
                    digest_of_folder(own.plugin_build, cache)};
    const NoFork no_fork;
    known_digests.digests = std::move(made);
  }
  return *known_digests.digests;
}

std::string machine() {
  utsname names{};
  return uname(&names) == 0 ? std::string(names.machine) + "-linux" : std::string("linux");
}

}  // namespace

std::string headers_digest(Cache* cache) {
  return own_digests(cache).headers;
}

bool has_simd_code(const Manifest& manifest) {
  if (std::ranges::any_of(manifest.ops, &OpDecl::has_cpu_code)) return true;
  const std::optional<std::string> text = read_file(manifest.folder() / "meson.build");
  return text && text->find("simd_sources") != std::string::npos;
}

std::optional<CacheRequest> build_request(const Manifest& manifest, const BuildOptions& options,
                                          Cache* cache, Progress* progress,
                                          std::vector<Reason>* reasons) {
  const std::optional<std::vector<std::string>> sources =
      source_fields(manifest, cache, progress, reasons);
  if (!sources) return std::nullopt;
  CacheRequest request;
  request.kind = "plugin";
  request.subject = manifest.name;
  const auto add = [&](std::string name, std::string value) {
    request.fields.push_back({std::move(name), std::move(value)});
  };
  const auto add_list = [&](std::string name, const std::vector<std::string>& values) {
    std::string text;
    for (const std::string& value : values) text += (text.empty() ? "" : " ") + value;
    if (!values.empty()) add(std::move(name), std::move(text));
  };
  add("plugin", manifest.name);
  for (size_t i = 0; i + 1 < sources->size(); i += 2)
    add("source " + (*sources)[i], (*sources)[i + 1]);
  // These fields repeat parts of plugin.toml, which is in the key already, so that messages can
  // name what changed.
  const BuildNeeds& needs = manifest.build;
  add_list("include folders", needs.include);
  add_list("defines", needs.defines);
  for (const auto& [compiler, flags] : needs.flags) add_list("flags for " + compiler, flags);
  add_list("libraries of pkg-config", needs.packages());
  add_list("libraries", needs.plain_libraries());
  if (needs.least_cuda != 0) add("least CUDA architecture", std::to_string(needs.least_cuda));
  add("CUDA architectures", options.cuda_archs);
  add("HIP architectures", options.hip_archs);
  if (options.cpu_level != 0) add("CPU level", "x86-64-v" + std::to_string(options.cpu_level));
  add("optimisation", options.debug ? "debug" : "release");
  add("machine", machine());
  add("ABI", std::to_string(OPDOCK_ABI_MAJOR) + "." + std::to_string(OPDOCK_ABI_MINOR));
  add("Opdock", OPDOCK_VERSION);
  const OwnDigests& own = own_digests(cache);
  add("Opdock's headers", own.headers);
  add("Opdock's device headers", own.vocabulary);
  add("Opdock's build rules", own.wrapper);
  return request;
}

}  // namespace opdock
