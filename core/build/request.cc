// What a build is asked for: the fields of its cache key.
// SPDX-License-Identifier: Apache-2.0
#include <sys/utsname.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/installed.h"
#include "base/sha256.h"
#include "build/builder.h"
#include "build/sources.h"
#include "opdock/plugin.h"

namespace opdock {
namespace {

namespace fs = std::filesystem;

// Names and contents of all files below `folder`.
std::string digest_of_folder(const std::string& folder) {
  FieldHasher hasher;
  std::vector<std::string> names;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    if (at->is_regular_file()) names.push_back(at->path().lexically_relative(folder).string());
  }
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    std::ifstream file(folder + "/" + name, std::ios::binary);
    hasher.add(name).add(
        std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()));
  }
  return to_hex(hasher.finish());
}

struct OwnDigests {
  std::string headers, vocabulary, wrapper;
};

// Read once: what is installed does not change under a running process.
const OwnDigests& own_digests() {
  static const OwnDigests digests = [] {
    const Installed& own = installed();
    return OwnDigests{digest_of_folder(own.include + "/opdock"),
                      digest_of_folder(own.device + "/opdock"), digest_of_folder(own.plugin_build)};
  }();
  return digests;
}

std::string machine() {
  utsname names{};
  return uname(&names) == 0 ? std::string(names.machine) + "-linux" : std::string("linux");
}

}  // namespace

CacheRequest build_request(const Manifest& manifest, const BuildOptions& options) {
  CacheRequest request;
  request.kind = "plugin";
  request.subject = manifest.name;
  const auto add = [&](std::string name, std::string value) {
    request.fields.push_back({std::move(name), std::move(value)});
  };
  add("plugin", manifest.name);
  for (const SourceFile& file : list_sources(manifest.folder().string())) {
    add("source " + file.name, file.sha256);
  }
  add("CUDA architectures", options.cuda_archs);
  add("HIP architectures", options.hip_archs);
  add("optimisation", options.debug ? "debug" : "release");
  add("machine", machine());
  add("ABI", std::to_string(OPDOCK_ABI_MAJOR) + "." + std::to_string(OPDOCK_ABI_MINOR));
  add("Opdock", OPDOCK_VERSION);
  const OwnDigests& own = own_digests();
  add("Opdock's headers", own.headers);
  add("Opdock's device headers", own.vocabulary);
  add("Opdock's build rules", own.wrapper);
  return request;
}

}  // namespace opdock
