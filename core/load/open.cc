// SPDX-License-Identifier: Apache-2.0
#include "load/open.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <regex>
#include <utility>

#include "discover/scan.h"
#include "fmt/format.h"

namespace opdock {
namespace {

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
  reasons->push_back(
      make_reason(Code::kFileChanged, candidate.path + " with another inode, size or time",
                  "the file that was judged; look at the folders again to judge the new one"));
  return Check::kChanged;
}

// The stamps of the files opened so far, by device and inode.
struct Opened {
  std::mutex mutex;
  std::map<std::pair<uint64_t, uint64_t>, FileStamp> stamps;
};

Opened& opened() {
  static Opened* const instance = new Opened;
  return *instance;
}

// Overwritten in place while mapped, a file has neither its old content nor its new one: refused.
bool is_overwritten(const Candidate& candidate, std::vector<Reason>* reasons) {
  const FileStamp& stamp = candidate.stamp;
  const std::lock_guard<std::mutex> lock(opened().mutex);
  const auto known = opened().stamps.find({stamp.device, stamp.inode});
  if (known == opened().stamps.end()) return false;
  if (known->second.size == stamp.size && known->second.mtime_ns == stamp.mtime_ns) return false;
  reasons->push_back({Code::kFileChanged,
                      candidate.path + ", overwritten in place after it was loaded",
                      "a new file that was renamed over the old one",
                      "restart the program; replace plugins by rename"});
  return true;
}

void remember(const FileStamp& stamp) {
  const std::lock_guard<std::mutex> lock(opened().mutex);
  opened().stamps.try_emplace({stamp.device, stamp.inode}, stamp);
}

// `path` with a random row of "./" and ".//" before the file's name: the same file, spelled as
// nobody in this process has spelled it before.
std::string fresh_spelling(const std::string& path) {
  const size_t name = path.rfind('/') + 1;
  std::string text = path.substr(0, name);
  uint32_t bits = std::random_device{}();
  for (int i = 0; i < 32; ++i, bits >>= 1) text += (bits & 1) != 0 ? ".//" : "./";
  return text + path.substr(name);
}

// True if the loader has an object for this spelling or, failing that, for the file's inode.
bool is_loaded(const std::string& path) {
  void* loaded = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (loaded != nullptr) dlclose(loaded);  // gives back only the reference just taken
  return loaded != nullptr;
}

}  // namespace

void* open_candidate(const Candidate& candidate, std::vector<Reason>* reasons) {
  if (check_file(candidate, reasons) == Check::kChanged) return nullptr;
  if (is_overwritten(candidate, reasons)) return nullptr;
  const std::string path =
      is_loaded(candidate.path) ? fresh_spelling(candidate.path) : candidate.path;
  dlerror();
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* message = dlerror();
    reasons->push_back(loader_reason(message == nullptr ? "no message" : message, candidate.path));
    return nullptr;
  }
  remember(candidate.stamp);
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
