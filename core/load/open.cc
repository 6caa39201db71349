// SPDX-License-Identifier: Apache-2.0
#include "load/open.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <regex>

#include "discover/scan.h"
#include "fmt/format.h"

namespace opdock {
namespace {

constexpr int kMaxVersions = 200;  // of one path in one process; PATH_MAX leaves room for them

enum class Check { kSame, kChanged };

Check check_file(const Candidate& candidate, std::vector<Reason>* reasons) {
  const int fd = open(candidate.path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
  struct stat status{};
  if (fd < 0 || fstat(fd, &status) != 0) {
    reasons->push_back(make_reason(Code::kFileChanged,
                                   fmt::format("{} ({})", candidate.path, std::strerror(errno)),
                                   "the file that was judged"));
    if (fd >= 0) close(fd);
    return Check::kChanged;
  }
  close(fd);
  if (stamp_of(status) == candidate.stamp) return Check::kSame;
  reasons->push_back(make_reason(
      Code::kFileChanged, candidate.path + " with another inode, size or time",
      "the file that was judged; look at the folders again to judge the new one"));
  return Check::kChanged;
}

// True if the mapping at `address` is of the candidate's file, by the kernel's own record.
bool is_mapped_from(uint64_t address, const FileStamp& stamp) {
  std::FILE* maps = std::fopen("/proc/self/maps", "re");
  if (maps == nullptr) return false;
  bool is_same = false;
  char* line = nullptr;
  size_t capacity = 0;
  while (getline(&line, &capacity, maps) > 0) {
    uint64_t begin = 0, end = 0, inode = 0;
    const int fields = std::sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %*s %*s %" SCNu64, &begin,
                                   &end, &inode);
    if (fields != 3 || address < begin || address >= end) continue;
    is_same = inode == stamp.inode;
    break;
  }
  std::free(line);
  std::fclose(maps);
  return is_same;
}

// `path` with "./" inserted `count` times before the file's name: the same file, spelled anew.
std::string spelling(const std::string& path, int count) {
  const size_t name = path.rfind('/') + 1;
  std::string text = path.substr(0, name);
  for (int i = 0; i < count; ++i) text += "./";
  return text + path.substr(name);
}

// An address in the object's dynamic section, which is mapped from its file.
uint64_t dynamic_address(void* handle) {
  link_map* object = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &object) != 0 || object == nullptr) return 0;
  return reinterpret_cast<uint64_t>(object->l_ld);
}

// The first spelling under which no other version of the file is loaded; empty if none is left.
std::string free_spelling(const Candidate& candidate) {
  for (int count = 0; count < kMaxVersions; ++count) {
    const std::string path = spelling(candidate.path, count);
    void* loaded = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (loaded == nullptr) return path;
    const bool is_same = is_mapped_from(dynamic_address(loaded), candidate.stamp);
    dlclose(loaded);  // gives back only the reference just taken
    if (is_same) return path;
  }
  return {};
}

}  // namespace

void* open_candidate(const Candidate& candidate, std::vector<Reason>* reasons) {
  if (check_file(candidate, reasons) == Check::kChanged) return nullptr;
  const std::string path = free_spelling(candidate);
  if (path.empty()) {
    reasons->push_back({Code::kLoadFailed,
                        fmt::format("{} versions of {} in this process", kMaxVersions,
                                    candidate.path),
                        "fewer", "restart the program"});
    return nullptr;
  }
  dlerror();
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* message = dlerror();
    reasons->push_back(loader_reason(message == nullptr ? "no message" : message, candidate.path));
    return nullptr;
  }
  // Stays open in any case: its constructors have run, and may have left pointers into it.
  return check_file(candidate, reasons) == Check::kSame ? handle : nullptr;
}

Reason loader_reason(const std::string& message, const std::string& path) {
  const Reason plain = make_reason(Code::kLoadFailed, message, "a file that the loader accepts");
  struct Row {
    const char* pattern;
    const char* advice;  // {0} is the pattern's first group
  };
  static const Row kRows[] = {
      {"^(\\S+): cannot open shared object file: No such file",
       "install the library {0}, or put its folder into the plugin's RUNPATH"},
      {"undefined symbol: (\\S+)",
       "link the library that defines {0} into the plugin (-Wl,-z,defs names it when linking)"},
      {"version `([^']+)' not found",
       "install the library version that has {0}, or build the plugin on this system"},
      {"cannot allocate memory in (static TLS block)",
       "compile the plugin with the default TLS model, or load it before other libraries"},
      {"(executable stack)", "link the plugin with -Wl,-z,noexecstack"},
      {"(failed to map segment)",
       "see whether its file system is mounted noexec, and copy the plugin elsewhere"},
      {"(file too short|invalid ELF header)", "copy the file again"},
  };
  for (const Row& row : kRows) {
    std::smatch match;
    if (!std::regex_search(message, match, std::regex(row.pattern))) continue;
    if (match[1] == path) return plain;
    return {Code::kLoadFailed, message, plain.wanted,
            fmt::format(fmt::runtime(row.advice), match[1].str())};
  }
  return plain;
}

}  // namespace opdock
