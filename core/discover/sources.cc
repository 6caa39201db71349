// SPDX-License-Identifier: Apache-2.0
#include "discover/sources.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "base/utf8.h"
#include "discover/order.h"
#include "discover/places.h"
#include "discover/rivals.h"
#include "fmt/format.h"

namespace opdock {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxManifestBytes = 1 << 20;  // of a plugin.toml, which is written by hand
constexpr size_t kMaxFiles = 10000;  // in a plugin's folder, since a build copies and hashes them
constexpr size_t kMaxMistakes = 20;  // reported for one plugin.toml

void reject(SourcePlugin* source, Reason reason) {
  source->state = State::kRejected;
  source->reasons.push_back(std::move(reason));
}

// Judges the declared devices as if the plugin were built for this machine: a device is rejected
// only if the machine does not have it.
std::vector<DeviceVerdict> judge_devices(const Manifest& manifest, const MachineFacts& machine) {
  FileFacts file;
  file.note.emplace();
  file.note->least_cuda = manifest.build.least_cuda;
  file.note->devices = manifest.backends();
  std::vector<DeviceVerdict> devices = judge(file, machine).devices;
  for (DeviceVerdict& device : devices) {
    if (device.state != State::kRejected) device.reasons.clear();
  }
  return devices;
}

void read_declaration(SourcePlugin* source) {
  const std::string path = source->folder + "/" + kManifestName;
  struct stat status{};
  if (stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) {
    return reject(source, make_reason(Code::kManifestInvalid, path + ", which is no readable file",
                                      "a regular file"));
  }
  if (static_cast<uint64_t>(status.st_size) > kMaxManifestBytes) {
    return reject(source, make_reason(Code::kManifestInvalid,
                                      fmt::format("{} of {} bytes", path, status.st_size),
                                      fmt::format("at most {} bytes", kMaxManifestBytes)));
  }
  std::vector<Reason> mistakes;
  std::optional<Manifest> manifest = look_at_manifest(path, &mistakes);
  if (mistakes.size() > kMaxMistakes) mistakes.resize(kMaxMistakes);
  for (Reason& mistake : mistakes) {
    mistake.found = escape_bytes(mistake.found);
    mistake.wanted = escape_bytes(mistake.wanted);
    reject(source, std::move(mistake));
  }
  if (manifest) source->manifest = std::make_shared<const Manifest>(*std::move(manifest));
}

std::string version_of(const SourcePlugin& source) {
  return source.manifest ? source.manifest->version : "";
}

}  // namespace

bool is_source_folder(int folder_fd, const std::string& name) {
  struct stat status{};
  return fstatat(folder_fd, (name + "/" + kManifestName).c_str(), &status, AT_SYMLINK_NOFOLLOW) ==
         0;
}

std::optional<Reason> check_source_tree(const std::string& folder, Trust* trust) {
  const TrustedPath to_folder = trust->check_path(folder);
  if (to_folder.reason) return to_folder.reason;
  std::error_code error;
  size_t files = 0;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    if (++files > kMaxFiles) {
      return Reason{Code::kManifestInvalid,
                    fmt::format("more than {} files in {}", kMaxFiles, folder),
                    "a folder that holds the plugin's own files alone",
                    "move the plugin into a folder of its own"};
    }
    const std::string path = at->path().string();
    struct stat status{};
    if (lstat(path.c_str(), &status) != 0) continue;  // removed meanwhile: the build will report it
    const bool is_link = S_ISLNK(status.st_mode);
    const TrustedPath trusted = is_link ? trust->check_path(path) : to_folder;
    if (trusted.reason) return trusted.reason;
    if (trusted.has_consent || (is_link && stat(path.c_str(), &status) != 0)) continue;
    if (std::optional<Reason> reason = trust->check_file(-1, status, path)) return reason;
  }
  if (error) {
    return make_reason(Code::kPathUnreadable, fmt::format("{} ({})", folder, error.message()),
                       "a folder that can be read");
  }
  return std::nullopt;
}

SourcePlugin look_at_source(std::string folder, std::string origin, Trust* trust,
                            const MachineFacts& machine) {
  SourcePlugin source;
  source.folder = std::move(folder);
  source.origin = std::move(origin);
  source.needs_trust = trust != nullptr;
  if (!is_utf8(source.folder)) {
    const std::string shown = escape_bytes(source.folder);
    source.folder = shown;
    reject(&source,
           make_reason(Code::kNameInvalid, fmt::format("\"{}\"", shown), "a path in UTF-8"));
    return source;
  }
  if (trust != nullptr) {
    if (std::optional<Reason> reason = check_source_tree(source.folder, trust)) {
      reject(&source, std::move(*reason));
    }
  }
  read_declaration(&source);
  if (source.manifest) source.devices = judge_devices(*source.manifest, machine);
  return source;
}

void mark_sources(const SearchEnvironment& environment, std::vector<SourcePlugin>* sources) {
  std::map<std::pair<std::string, std::string>, const SourcePlugin*> first;
  for (SourcePlugin& source : *sources) {
    if (!source.manifest) continue;
    const std::string& name = source.manifest->name;
    if (environment.secure) {
      source.state = State::kRejected;
      source.reasons.push_back(make_reason(Code::kBuildPrivileged));
    }
    if (std::optional<Reason> reason = deselection(environment, name)) {
      source.state = State::kRejected;
      source.reasons.insert(source.reasons.begin(), std::move(*reason));
    }
    if (source.state == State::kRejected) continue;
    const auto [entry, is_new] = first.try_emplace({name, version_of(source)}, &source);
    if (is_new) continue;
    source.reasons.push_back(make_reason(
        Code::kDuplicatePlugin,
        fmt::format("{} {} also in {}", name, version_of(source), entry->second->folder),
        "one folder for each version of a source plugin"));
  }
}

bool provides(const SourcePlugin& source, const std::string& plugin, const std::string& op) {
  if (!source.manifest) return false;
  if (!plugin.empty() && source.manifest->name != plugin) return false;
  return std::any_of(source.manifest->ops.begin(), source.manifest->ops.end(),
                     [&](const OpDecl& declared) { return declared.name == op; });
}

bool is_better(const SourcePlugin& a, const SourcePlugin& b) {
  if (a.state != b.state) return a.state < b.state;
  const Version first = Version::parse(version_of(a)).value_or(Version());
  const Version second = Version::parse(version_of(b)).value_or(Version());
  return first != second ? first > second : a.rank < b.rank;
}

}  // namespace opdock
