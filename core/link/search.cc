// SPDX-License-Identifier: Apache-2.0
#include "link/search.h"

#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <link.h>
#include <sys/auxv.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace opdock {
namespace {

std::vector<std::string> split(const std::string& paths, const char* separators) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (begin <= paths.size() && !paths.empty()) {
    const size_t end = std::min(paths.find_first_of(separators, begin), paths.size());
    std::string part = paths.substr(begin, end - begin);
    while (part.size() > 1 && part.back() == '/') part.pop_back();
    // An empty part means the working folder.
    parts.push_back(part.empty() ? "." : std::move(part));
    begin = end + 1;
  }
  return parts;
}

// Replaces "$TOKEN" and "${TOKEN}" by `value`.
void replace_token(std::string* text, const std::string& token, const std::string& value) {
  for (const std::string& spelling : {"${" + token + "}", "$" + token}) {
    size_t at = 0;
    while ((at = text->find(spelling, at)) != std::string::npos) {
      text->replace(at, spelling.size(), value);
      at += value.size();
    }
  }
}

// Returns LD_LIBRARY_PATH as it was when the process started: the loader reads it only then, so
// later calls of setenv have no effect.
std::vector<std::string> started_with_library_path() {
  constexpr std::string_view kName = "LD_LIBRARY_PATH=";
  if (::getauxval(AT_SECURE) != 0) return {};
  std::ifstream file("/proc/self/environ", std::ios::binary);
  const std::string all((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  for (size_t at = 0; at < all.size(); at = all.find('\0', at) + 1) {
    if (all.compare(at, kName.size(), kName) == 0) {
      return split(all.c_str() + at + kName.size(), ":;");
    }
    if (all.find('\0', at) == std::string::npos) break;
  }
  return {};
}

// Returns the folders that were built into the loader. The loader does not name them separately:
// they are the folders that it searches for the C library, which has no RUNPATH, except those that
// are known to come from elsewhere.
std::vector<std::string> built_in_folders(const std::vector<std::string>& known) {
  std::vector<std::string> folders;
  void* const handle = ::dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
  Dl_serinfo head{};
  if (handle != nullptr && ::dlinfo(handle, RTLD_DI_SERINFOSIZE, &head) == 0) {
    std::vector<uint64_t> room(head.dls_size / sizeof(uint64_t) + 1);
    Dl_serinfo* const list = reinterpret_cast<Dl_serinfo*>(room.data());
    list->dls_size = head.dls_size;
    list->dls_cnt = head.dls_cnt;
    if (::dlinfo(handle, RTLD_DI_SERINFO, list) == 0) {
      for (unsigned i = 0; i < list->dls_cnt; ++i) {
        const std::string folder = list->dls_serpath[i].dls_name;
        if (std::find(known.begin(), known.end(), folder) == known.end()) folders.push_back(folder);
      }
    }
  }
  if (handle != nullptr) ::dlclose(handle);
  if (!folders.empty()) return folders;
  const std::string triplet =
      kThisMachine == EM_X86_64 ? "/x86_64-linux-gnu" : "/aarch64-linux-gnu";
  return {"/lib" + triplet, "/usr/lib" + triplet, "/lib64", "/usr/lib64", "/lib", "/usr/lib"};
}

// Returns the value of $LIB: the system's folder for 64-bit libraries, relative to / and /usr.
std::string lib_token_of(const std::vector<std::string>& system_folders) {
  for (const std::string& folder : system_folders) {
    if (folder.starts_with("/lib/") || folder == "/lib64") return folder.substr(1);
  }
  return "lib64";
}

SearchPlaces make_places() {
  SearchPlaces places;
  places.library_path = started_with_library_path();
  std::vector<std::string> known = places.library_path;
  std::error_code ignored;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  if (const auto library = LibraryPool::shared().get(program, Files())) {
    places.program = Needer(program, library->dynamic, nullptr);
    for (std::string folder : split(library->dynamic.rpath, ":")) {
      replace_token(&folder, "ORIGIN", places.program.folder);
      known.push_back(std::move(folder));
    }
  }
  places.system_folders = built_in_folders(known);
  places.lib_token = lib_token_of(places.system_folders);
  return places;
}

// Returns whether this is a processor of Intel's. glibc asks only of these whether they are one of
// its two platforms, haswell or (not known here) xeon_phi, and whether they have AVX-512.
bool is_intel() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_is("intel") != 0;
#else
  return false;
#endif
}

// Adds the subfolders for library variants for newer processors, best first. Before 2.37, glibc
// also searched folders named after processor features: every combination of the words below,
// ordered like binary numbers whose highest bit is the first word.
void add_subfolders(int cpu_level, SearchPlaces* places) {
  places->platform_token = kThisMachine == EM_X86_64 ? "x86_64" : "aarch64";
  const Version glibc = Version::parse(gnu_get_libc_version()).value_or(Version{2, 40});
  if (kThisMachine != EM_X86_64) return;
  const bool is_haswell = cpu_level >= 3 && is_intel();
  if (is_haswell) places->platform_token = "haswell";
  if (glibc >= Version{2, 33}) {
    places->cpu_level = cpu_level;
    for (int level = cpu_level; level >= 2; --level) {
      places->subfolders.push_back("glibc-hwcaps/x86-64-v" + std::to_string(level));
    }
  }
  if (glibc >= Version{2, 37}) return;
  std::vector<std::string> words = {"tls"};
  if (is_haswell) words.emplace_back("haswell");
  if (is_haswell && cpu_level >= 4) words.emplace_back("avx512_1");
  words.emplace_back("x86_64");
  for (unsigned chosen = (1u << words.size()) - 1; chosen != 0; --chosen) {
    std::string subfolder;
    for (size_t i = 0; i < words.size(); ++i) {
      if ((chosen >> (words.size() - 1 - i) & 1) == 0) continue;
      subfolder += (subfolder.empty() ? "" : "/") + words[i];
    }
    places->subfolders.push_back(std::move(subfolder));
  }
}

bool is_passed_over(const Library& library, uint16_t machine) {
  return library.is_other_class || library.machine != machine;
}

std::shared_ptr<const Library> no_file_there(const std::string& path, std::string kind) {
  Library library;
  library.path = path;
  library.machine = kThisMachine;
  library.refusal = make_reason(Code::kNotRegular, std::move(kind), "a shared object");
  return std::make_shared<const Library>(std::move(library));
}

}  // namespace

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

SearchPlaces places_here(int cpu_level) {
  static const SearchPlaces& known = *new SearchPlaces(make_places());
  SearchPlaces places = known;
  add_subfolders(cpu_level, &places);
  places.has_cache = true;
  return places;
}

std::string LibrarySearch::expand(std::string text, const std::string& origin) const {
  if (text.find('$') == std::string::npos) return text;
  replace_token(&text, "ORIGIN", origin);
  replace_token(&text, "LIB", places_.lib_token);
  replace_token(&text, "PLATFORM", places_.platform_token);
  return text;
}

std::optional<FoundLibrary> LibrarySearch::at(const std::string& path) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = files_at_.find(path); known != files_at_.end()) {
      if (known->second == nullptr) return std::nullopt;
      return FoundLibrary{path, known->second};
    }
  }
  std::shared_ptr<const Library> library = LibraryPool::shared().get(path, *files_);
  if (library == nullptr) {
    if (std::string kind = files_->other_kind(path); !kind.empty()) {
      library = no_file_there(path, std::move(kind));
    }
  }
  if (library != nullptr && is_passed_over(*library, places_.machine)) library = nullptr;
  const std::lock_guard lock(mutex_);
  // Another thread may have read it meanwhile; all threads use the result that came first.
  library = files_at_.try_emplace(path, std::move(library)).first->second;
  if (library == nullptr) return std::nullopt;
  return FoundLibrary{path, std::move(library)};
}

std::vector<std::string> LibrarySearch::subfolders_of(const std::string& folder) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = subfolders_.find(folder); known != subfolders_.end()) {
      return known->second;
    }
  }
  std::vector<std::string> found;
  if (files_->is_folder(folder)) {
    for (const std::string& subfolder : places_.subfolders) {
      if (files_->is_folder(folder + "/" + subfolder)) found.push_back(subfolder);
    }
  }
  const std::lock_guard lock(mutex_);
  return subfolders_[folder] = found;
}

std::optional<FoundLibrary> LibrarySearch::find_in(const std::string& folder,
                                                   const std::string& name) {
  for (const std::string& subfolder : subfolders_of(folder)) {
    if (auto found = at(folder + "/" + subfolder + "/" + name)) return found;
  }
  return at(folder + "/" + name);
}

std::optional<FoundLibrary> LibrarySearch::find_in_all(const std::string& folders,
                                                       const std::string& origin,
                                                       const std::string& name) {
  for (const std::string& folder : split(folders, ":")) {
    if (auto found = find_in(expand(folder, origin), name)) return found;
  }
  return std::nullopt;
}

std::optional<FoundLibrary> LibrarySearch::find_in_system(const std::string& name) {
  std::shared_ptr<const LoaderCache> cache = places_.cache;
  if (cache == nullptr && places_.has_cache) cache = read_loader_cache(places_.machine);
  if (cache != nullptr) {
    const auto listed = cache->find(name);
    const std::vector<CachedLibrary> none;
    const CachedLibrary* best = nullptr;
    int best_level = -1;
    for (const CachedLibrary& library : listed == cache->end() ? none : listed->second) {
      int level = 0;
      if (!library.hwcaps.empty()) {
        constexpr std::string_view kPrefix = "x86-64-v";
        if (!library.hwcaps.starts_with(kPrefix)) continue;
        level = std::atoi(library.hwcaps.c_str() + kPrefix.size());
        if (level < 2 || level > places_.cpu_level) continue;
      }
      if (level <= best_level) continue;
      best = &library;
      best_level = level;
    }
    if (best != nullptr) {
      if (auto found = at(best->path)) return found;
    }
  }
  for (const std::string& folder : places_.system_folders) {
    if (auto found = find_in(folder, name)) return found;
  }
  return std::nullopt;
}

std::optional<FoundLibrary> LibrarySearch::find(const std::string& name, const Needer& needer) {
  if (name.empty()) return std::nullopt;  // dlopen would take it for the program
  if (name.find('/') != std::string::npos) return at(expand(name, needer.folder));
  if (!needer.has_runpath) {
    for (const Needer* by = &needer; by != nullptr; by = by->parent) {
      if (by->has_runpath) continue;
      if (auto found = find_in_all(by->rpath, by->folder, name)) return found;
    }
    const Needer& program = places_.program;
    if (!program.has_runpath) {
      if (auto found = find_in_all(program.rpath, program.folder, name)) return found;
    }
  }
  for (const std::string& folder : places_.library_path) {
    if (auto found = find_in(expand(folder, needer.folder), name)) return found;
  }
  if (auto found = find_in_all(needer.runpath, needer.folder, name)) return found;
  return needer.no_default_folders ? std::nullopt : find_in_system(name);
}

std::optional<std::string> loaded_under(const std::string& name) {
  if (name.empty() || name.find('/') != name.npos) return std::nullopt;
  const NoFork no_fork;
  void* const handle = ::dlopen(name.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return std::nullopt;
  link_map* map = nullptr;
  std::string path = name;
  if (::dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr) path = map->l_name;
  ::dlclose(handle);
  return path;
}

std::optional<std::string> find_library(const std::string& name) {
  static const Files& files = *new Files;
  SearchPlaces places = places_here(0);
  // The caller opens the library by its path, so the variable's current value counts.
  const char* const folders = ::secure_getenv("LD_LIBRARY_PATH");
  places.library_path = split(folders == nullptr ? "" : folders, ":;");
  LibrarySearch search(std::move(places), &files);
  if (std::optional<FoundLibrary> found = search.find(name, Needer{})) {
    return found->library->is_elf ? std::optional(found->path) : std::nullopt;
  }
  return loaded_under(name);
}

}  // namespace opdock
