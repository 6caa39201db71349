// SPDX-License-Identifier: Apache-2.0
#include "note/libraries.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <unordered_map>

#include "base/mutex.h"
#include "note/loader_cache.h"

namespace opdock {
namespace {

// Only a shared object of the right machine counts: the loader passes over others.
bool fits(const std::string& path, uint16_t machine) {
  // The path comes from a file that nobody vouches for: a device must not even be opened.
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return false;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return false;
  Elf64_Ehdr header{};
  const ssize_t got = ::pread(fd, &header, sizeof header, 0);
  ::close(fd);
  return got == static_cast<ssize_t>(sizeof header) &&
         std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
         header.e_ident[EI_CLASS] == ELFCLASS64 && header.e_machine == machine;
}

std::vector<std::string> split(const std::string& paths) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (begin <= paths.size() && !paths.empty()) {
    const size_t end = std::min(paths.find_first_of(":;", begin), paths.size());
    parts.push_back(paths.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string expand(std::string text, const std::string& origin, uint16_t machine) {
  const std::pair<const char*, std::string> tokens[] = {
      {"ORIGIN", origin},
      {"LIB", machine == EM_X86_64 ? "lib/x86_64-linux-gnu" : "lib/aarch64-linux-gnu"},
      {"PLATFORM", machine == EM_X86_64 ? "x86_64" : "aarch64"}};
  for (const auto& [token, value] : tokens) {
    for (const std::string& spelling :
         {"${" + std::string(token) + "}", "$" + std::string(token)}) {
      size_t at = 0;
      while ((at = text.find(spelling, at)) != std::string::npos) {
        text.replace(at, spelling.size(), value);
        at += value.size();
      }
    }
  }
  return text;
}

std::optional<std::string> find_in(const std::string& folders, const std::string& origin,
                                   const std::string& name, uint16_t machine) {
  for (const std::string& folder : split(folders)) {
    const std::string expanded = expand(folder, origin, machine);
    const std::string path = (expanded.empty() ? "." : expanded) + "/" + name;
    if (fits(path, machine)) return path;
  }
  return std::nullopt;
}

LoaderCache read_loader_cache(uint16_t machine) {
  std::vector<uint8_t> bytes;
  const int fd = ::open("/etc/ld.so.cache", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  uint8_t piece[16384];
  constexpr size_t kMost = 64 << 20;
  for (ssize_t got = 0; (got = ::read(fd, piece, sizeof piece)) > 0 && bytes.size() < kMost;) {
    bytes.insert(bytes.end(), piece, piece + got);
  }
  ::close(fd);
  return parse_loader_cache(bytes, machine);
}

// The places that do not depend on who asks: the cache and the default folders.
class SystemPlaces {
 public:
  std::optional<std::string> find(const std::string& name, uint16_t machine) {
    const std::string key = name + ':' + std::to_string(machine);
    {
      const std::lock_guard lock(mutex_);
      if (const auto known = found_.find(key); known != found_.end()) return known->second;
    }
    std::optional<std::string> path = search(name, machine);
    // What is missing may be installed any moment, so only what is there is remembered.
    const std::lock_guard lock(mutex_);
    if (path) found_[key] = *path;
    return path;
  }

 private:
  std::optional<std::string> search(const std::string& name, uint16_t machine) {
    struct stat now{};
    const bool there = ::stat("/etc/ld.so.cache", &now) == 0;
    std::shared_ptr<const LoaderCache> cache;
    {
      const std::lock_guard lock(mutex_);
      const bool same = there && machine == machine_ && now.st_ino == stamp_.st_ino &&
                        now.st_mtim.tv_sec == stamp_.st_mtim.tv_sec &&
                        now.st_mtim.tv_nsec == stamp_.st_mtim.tv_nsec;
      if (same) cache = cache_;
    }
    if (cache == nullptr) {
      cache = std::make_shared<const LoaderCache>(read_loader_cache(machine));
      const std::lock_guard lock(mutex_);
      cache_ = cache;
      stamp_ = now;
      machine_ = machine;
    }
    if (const auto listed = cache->find(name); listed != cache->end()) {
      for (const std::string& path : listed->second) {
        if (fits(path, machine)) return path;
      }
    }
    static constexpr const char* kFolders[] = {
        "/lib:/usr/lib:/lib64:/usr/lib64:/lib/x86_64-linux-gnu:/usr/lib/x86_64-linux-gnu",
        "/lib:/usr/lib:/lib64:/usr/lib64:/lib/aarch64-linux-gnu:/usr/lib/aarch64-linux-gnu"};
    return find_in(kFolders[machine == EM_AARCH64], "", name, machine);
  }

  Mutex mutex_;  // of what follows
  std::unordered_map<std::string, std::string> found_;
  std::shared_ptr<const LoaderCache> cache_;
  struct stat stamp_{};
  uint16_t machine_ = 0;
};
SystemPlaces& system_places = *new SystemPlaces;

// A library loaded already satisfies a need by its name alone, wherever it came from.
std::optional<std::string> find_loaded(const std::string& name) {
  void* const handle = ::dlopen(name.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return std::nullopt;
  link_map* map = nullptr;
  std::string path = name;
  if (::dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr) path = map->l_name;
  ::dlclose(handle);
  return path;
}

}  // namespace

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::optional<std::string> find_library(const std::string& name, const Needer& needer) {
  const uint16_t machine = needer.machine;
  if (name.empty()) return std::nullopt;  // dlopen would take it for the program itself
  if (name.find('/') != std::string::npos) {
    const std::string path = expand(name, needer.folder, machine);
    return fits(path, machine) ? std::optional(path) : std::nullopt;
  }
  if (needer.runpath.empty()) {
    for (const Needer* at = &needer; at != nullptr; at = at->parent) {
      if (!at->runpath.empty()) continue;
      if (auto path = find_in(at->rpath, at->folder, name, machine)) return path;
    }
  }
  if (const char* folders = ::secure_getenv("LD_LIBRARY_PATH")) {
    if (auto path = find_in(folders, needer.folder, name, machine)) return path;
  }
  if (auto path = find_in(needer.runpath, needer.folder, name, machine)) return path;
  if (auto path = system_places.find(name, machine)) return path;
  return find_loaded(name);
}

}  // namespace opdock
