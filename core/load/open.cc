// SPDX-License-Identifier: Apache-2.0
#include "load/open.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <random>
#include <regex>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "discover/scan.h"
#include "fmt/format.h"

namespace opdock {
namespace {

// The judged file, open; closed at the end.
class JudgedFile {
 public:
  explicit JudgedFile(const Candidate& candidate)
      : candidate_(candidate),
        fd_(open(candidate.path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY)),
        error_(errno) {}
  ~JudgedFile() {
    if (fd_ >= 0) close(fd_);
  }
  JudgedFile(const JudgedFile&) = delete;
  JudgedFile& operator=(const JudgedFile&) = delete;

  // Whether it is still what was judged; a reason if not.
  bool check(std::vector<Reason>* reasons) const {
    struct stat status{};
    const bool is_open = fd_ >= 0;
    if (is_open && fstat(fd_, &status) == 0 && stamp_of(status) == candidate_.stamp) return true;
    reasons->push_back(
        is_open ? make_reason(
                      Code::kFileChanged, candidate_.path + " with another inode, size or time",
                      "the file that was judged; look at the folders again to judge the new one")
                : make_reason(Code::kFileChanged,
                              fmt::format("{} ({})", candidate_.path, std::strerror(error_)),
                              "the file that was judged"));
    return false;
  }

  int fd() const { return fd_; }

 private:
  const Candidate& candidate_;
  int fd_;
  int error_;
};

// The stamps of the files opened so far, by device and inode.
struct Opened {
  Mutex mutex;
  std::map<std::pair<uint64_t, uint64_t>, FileStamp> stamps;
};
Opened& opened = *new Opened;

// Overwritten in place while mapped, a file has neither its old content nor its new one: refused.
bool is_overwritten(const Candidate& candidate, std::vector<Reason>* reasons) {
  const FileStamp& stamp = candidate.stamp;
  const std::lock_guard lock(opened.mutex);
  const auto known = opened.stamps.find({stamp.device, stamp.inode});
  if (known == opened.stamps.end()) return false;
  if (known->second.size == stamp.size && known->second.mtime_ns == stamp.mtime_ns) return false;
  reasons->push_back({Code::kFileChanged,
                      candidate.path + ", overwritten in place after it was loaded",
                      "a new file that was renamed over the old one",
                      "restart the program; replace plugins by rename"});
  return true;
}

void remember(const FileStamp& stamp) {
  const std::lock_guard lock(opened.mutex);
  opened.stamps.try_emplace({stamp.device, stamp.inode}, stamp);
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

// The loader takes $ORIGIN from the path that it is given.
bool needs_origin(const FileFacts& file) {
  const auto names_it = [](const std::string& text) {
    return text.find("$ORIGIN") != text.npos || text.find("${ORIGIN}") != text.npos;
  };
  return names_it(file.rpath) || names_it(file.runpath) ||
         std::any_of(file.needed.begin(), file.needed.end(), names_it);
}

// Debuggers, and the plugin itself by dladdr, ask the loader where an object is: its own path, not
// the descriptor's that it was opened by. Both texts stay, as others may be reading the old one.
void rename_object(void* handle, const std::string& opened, const std::string& path) {
  link_map* object = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &object) != 0 || object->l_name != opened) return;
  static std::mutex mutex;
  static auto* const names = new std::vector<char*>;
  const std::lock_guard<std::mutex> lock(mutex);
  names->push_back(object->l_name);
  if (char* name = strdup(path.c_str())) object->l_name = name;
}

}  // namespace

void* open_candidate(const Candidate& candidate, std::vector<Reason>* reasons) {
  const JudgedFile file(candidate);
  if (!file.check(reasons) || is_overwritten(candidate, reasons)) return nullptr;
  std::string path = needs_origin(candidate.file) ? "" : descriptor_path(file.fd());
  const bool is_by_descriptor = !path.empty();
  if (is_by_descriptor) {
    path = fresh_spelling(path);  // numbers of descriptors come again
  } else {
    path = is_loaded(candidate.path) ? fresh_spelling(candidate.path) : candidate.path;
  }
  dlerror();
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* text = dlerror();
    std::string message = text == nullptr ? "no message" : text;
    if (const size_t at = message.find(path); at != message.npos) {
      message.replace(at, path.size(), candidate.path);
    }
    reasons->push_back(loader_reason(message, candidate.path));
    return nullptr;
  }
  remember(candidate.stamp);
  // Stays open in any case: its constructors have run, and may have left pointers into it.
  if (is_by_descriptor) {
    rename_object(handle, path, candidate.path);
    return file.check(reasons) ? handle : nullptr;
  }
  return JudgedFile(candidate).check(reasons) ? handle : nullptr;
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
