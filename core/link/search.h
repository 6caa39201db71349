// Finds libraries in the way of the dynamic loader, without loading any.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "link/files.h"
#include "link/library_pool.h"
#include "link/loader_cache.h"
#include "note/machine_name.h"

namespace opdock {

std::string folder_of(const std::string& path);

// Properties of the file that needs a library, on which the search depends.
struct Needer {
  Needer() = default;
  Needer(const std::string& path, const Dynamic& dynamic, const Needer* loaded_by)
      : folder(folder_of(path)),
        rpath(dynamic.rpath),
        runpath(dynamic.runpath),
        has_runpath(dynamic.has_runpath),
        no_default_folders(dynamic.no_default_folders),
        parent(loaded_by) {}
  std::string folder;  // for $ORIGIN
  std::string rpath, runpath;
  bool has_runpath = false, no_default_folders = false;
  const Needer* parent = nullptr;  // the file that loaded this one: RPATHs are inherited
};

// The places that the loader of one process searches.
struct SearchPlaces {
  uint16_t machine = kThisMachine;
  int cpu_level = 0;  // x86-64: 2 to 4; 0: the loader does not check it
  // Subfolders that are searched first in each folder, in this order: "glibc-hwcaps/x86-64-v3",
  // "haswell".
  std::vector<std::string> subfolders;
  std::vector<std::string> library_path;  // LD_LIBRARY_PATH at the start of the process
  std::vector<std::string> system_folders;
  bool has_cache = false;  // uses this machine's ld.so.cache, read when first needed
  std::shared_ptr<const LoaderCache> cache;         // uses this cache instead
  std::string lib_token = "lib64", platform_token;  // the values of $LIB and $PLATFORM
  Needer program;                                   // its RPATH is inherited last
};

// Returns the places for this process or for one that it starts. cpu_level:
// MachineFacts::cpu_level.
SearchPlaces places_here(int cpu_level);

struct FoundLibrary {
  std::string path;
  std::shared_ptr<const Library> library;  // never NULL
};

// The search of one process. Caches what it finds, so use one object per scan. Thread-safe.
class LibrarySearch {
 public:
  LibrarySearch(SearchPlaces places, const Files* files)
      : places_(std::move(places)), files_(files) {}

  const SearchPlaces& places() const { return places_; }
  const Files& files() const { return *files_; }

  // Finds the library for `name`, a NEEDED entry or an argument of dlopen. Order: RPATHs,
  // LD_LIBRARY_PATH, RUNPATH, /etc/ld.so.cache, the system's folders, each with its glibc-hwcaps.
  // Skips libraries for other machines; any other file ends the search, whatever it is.
  std::optional<FoundLibrary> find(const std::string& name, const Needer& needer);

 private:
  std::optional<FoundLibrary> find_in(const std::string& folder, const std::string& name);
  std::optional<FoundLibrary> find_in_all(const std::string& folders, const std::string& origin,
                                          const std::string& name);
  std::optional<FoundLibrary> find_in_system(const std::string& name);
  std::optional<FoundLibrary> at(const std::string& path);
  std::vector<std::string> subfolders_of(const std::string& folder);
  std::string expand(std::string text, const std::string& origin) const;

  const SearchPlaces places_;
  const Files* files_;
  Mutex mutex_;  // protects the following members
  std::map<std::string, std::shared_ptr<const Library>> files_at_;
  std::map<std::string, std::vector<std::string>> subfolders_;  // of the folders searched so far
};

// Returns the path of the library that this process's loader has under that name, also by an alias;
// nullopt: none. Names with a slash are not looked up: the loader would open that file, and a FIFO
// would block for ever.
std::optional<std::string> loaded_under(const std::string& name);

// Returns the path of a library of that name or path, for a caller that opens it by the path.
// Searches as dlopen does, with the current LD_LIBRARY_PATH, and finally among the libraries of
// this process. nullopt: not found. Thread-safe.
std::optional<std::string> find_library(const std::string& name);

}  // namespace opdock
