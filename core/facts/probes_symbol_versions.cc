// Finds the newest symbol versions of the run-time libraries that a plugin will be bound to, in
// their DT_VERDEF. The libraries are those in this process, or else those that the loader would
// load with the plugin.
// SPDX-License-Identifier: Apache-2.0
#include <gnu/libc-version.h>

#include <map>
#include <string_view>

#include "facts/probes.h"
#include "link/process.h"

namespace opdock {
namespace {

// The beginnings of the libraries' file names; a name may continue, as in libstdc++.so.6.0.30.
constexpr std::string_view kLibraries[] = {"libstdc++.so.6", "libgcc_s.so.1", "libc.so.6"};

// Returns which of kLibraries the path is; empty if none.
std::string_view runtime_library(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  for (std::string_view library : kLibraries) {
    if (name.starts_with(library)) return library;
  }
  return {};
}

// Records a version such as "GLIBCXX_3.4.30" if it is the newest with its prefix so far.
void remember(std::string_view name, std::map<std::string, Version>* newest) {
  const size_t underscore = name.rfind('_');
  if (underscore == name.npos) return;
  const std::optional<Version> version = Version::parse(name.substr(underscore + 1));
  if (!version) return;  // GLIBC_PRIVATE, CXXABI_FLOAT128
  Version& known = (*newest)[std::string(name.substr(0, underscore))];
  if (known < *version) known = *version;
}

}  // namespace

void probe_symbol_versions(MachineFacts* facts) {
  std::map<std::string_view, std::string> loaded;
  for (const LoadedLibrary& library : this_process(0).loaded) {
    const std::string_view name = runtime_library(library.path);
    if (!name.empty()) loaded.try_emplace(name, library.path);
  }
  // A program may have the library linked statically, or not use it: then the plugin brings the one
  // that the loader finds.
  for (std::string_view name : kLibraries) {
    std::string& path = loaded[name];
    if (path.empty()) path = find_library(std::string(name)).value_or("");
    const auto library = LibraryPool::shared().get(path, Files());
    if (library == nullptr) continue;
    for (const VersionDefinition& version : library->symbols.definitions()) {
      remember(version.name, &facts->symbol_versions);
    }
  }
  // The C library reports its own version, even where it is linked under another name.
  if (const std::optional<Version> version = Version::parse(gnu_get_libc_version())) {
    facts->symbol_versions["GLIBC"] = *version;
  }
}

}  // namespace opdock
