// Finding libraries the way the dynamic loader does, without loading any.
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

// What a library's place depends on, of the file that needs it.
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
  const Needer* parent = nullptr;  // who loaded this file: RPATHs are inherited
};

// Where the loader of one process looks.
struct SearchPlaces {
  uint16_t machine = kThisMachine;
  int cpu_level = 0;  // x86-64: 2 to 4; 0: the loader does not ask
  // In each folder these come first, in this order: "glibc-hwcaps/x86-64-v3", "haswell".
  std::vector<std::string> subfolders;
  std::vector<std::string> library_path;  // LD_LIBRARY_PATH, as the process was started with
  std::vector<std::string> system_folders;
  bool has_cache = false;                    // this machine's ld.so.cache, read when first needed
  std::shared_ptr<const LoaderCache> cache;  // or this one
  std::string lib_token = "lib64", platform_token;  // what $LIB and $PLATFORM stand for
  Needer program;                                   // whose RPATH is the last to be inherited
};

// Those of this process, or of a process that it starts. cpu_level: MachineFacts::cpu_level.
SearchPlaces places_here(int cpu_level);

struct FoundLibrary {
  std::string path;
  std::shared_ptr<const Library> library;  // never NULL
};

// One process's search. Remembers what lies where, so it is for one scan. Thread-safe.
class LibrarySearch {
 public:
  LibrarySearch(SearchPlaces places, const Files* files)
      : places_(std::move(places)), files_(files) {}

  const SearchPlaces& places() const { return places_; }
  const Files& files() const { return *files_; }

  // The library that `name`, a NEEDED entry or an argument of dlopen, leads to. Order: RPATHs,
  // LD_LIBRARY_PATH, RUNPATH, /etc/ld.so.cache, the system's folders, each with its glibc-hwcaps.
  // Libraries for other machines are passed over; any other file ends the search, whatever it is.
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
  Mutex mutex_;  // of what follows
  std::map<std::string, std::shared_ptr<const Library>> files_at_;
  std::map<std::string, std::vector<std::string>> subfolders_;  // of the folders seen
};

// The path of what this process's loader has under that name, by an alias too; nullopt: nothing. A
// name with a slash is not asked about: the loader would open what lies there, a FIFO without end.
std::optional<std::string> loaded_under(const std::string& name);

// Where a library of that name or path is, for who then opens it by its path: searched for as
// dlopen would, with LD_LIBRARY_PATH as it is now, and at last what the process has loaded.
// nullopt: nowhere. Thread-safe.
std::optional<std::string> find_library(const std::string& name);

}  // namespace opdock
