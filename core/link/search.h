// Finding libraries the way the dynamic loader does, without loading any.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <elf.h>

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

namespace opdock {

#if defined(__x86_64__)
inline constexpr uint16_t kThisMachine = EM_X86_64;
#elif defined(__aarch64__)
inline constexpr uint16_t kThisMachine = EM_AARCH64;
#else
#error "Opdock runs on x86-64 and aarch64"
#endif

std::string folder_of(const std::string& path);

// What a library's place depends on, of the file that needs it.
struct Needer {
  std::string folder;  // for $ORIGIN
  std::string rpath, runpath;
  const Needer* parent = nullptr;  // who loaded this file: RPATHs are inherited
};

// Where the loader of one process looks.
struct SearchPlaces {
  uint16_t machine = kThisMachine;
  int cpu_level = 0;  // of glibc-hwcaps: 2 to 4, the subfolders up to x86-64-v4; 0: none
  std::vector<std::string> library_path;  // LD_LIBRARY_PATH, as the process was started with
  std::vector<std::string> system_folders;
  std::shared_ptr<const LoaderCache> cache;
  std::string lib_token = "lib64";  // what $LIB stands for
  Needer program;                   // whose RPATH is the last to be inherited
};

// Those of this process, or of a process that it starts.
SearchPlaces places_here();

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
  bool has_hwcaps(const std::string& folder);
  std::string expand(std::string text, const std::string& origin) const;

  const SearchPlaces places_;
  const Files* files_;
  Mutex mutex_;  // of what follows
  std::map<std::string, std::shared_ptr<const Library>> files_at_;
  std::map<std::string, bool> has_hwcaps_;
};

// The path that dlopen(name) in this process would open, or has open; nullopt: none. Thread-safe.
std::optional<std::string> find_library(const std::string& name);

}  // namespace opdock
