// SPDX-License-Identifier: Apache-2.0
#include "load/open.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <regex.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include "base/loaded_objects.h"
#include "base/mutex.h"
#include "discover/scan.h"
#include "fmt/format.h"

namespace opdock {
namespace {

// A candidate's file, which is open while this object lives.
class CheckedFile {
 public:
  explicit CheckedFile(const Candidate& candidate)
      : candidate_(candidate),
        fd_(open(candidate.path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY)),
        error_(errno) {}
  ~CheckedFile() {
    if (fd_ >= 0) close(fd_);
  }
  CheckedFile(const CheckedFile&) = delete;
  CheckedFile& operator=(const CheckedFile&) = delete;

  // Returns whether it is still the file that was judged; adds a reason if not.
  bool check(std::vector<Reason>* reasons) const {
    struct stat status{};
    const bool is_open = fd_ >= 0;
    if (is_open && fstat(fd_, &status) == 0 && stamp_of(status) == candidate_.stamp) return true;
    reasons->push_back(
        is_open
            ? make_reason(Code::kFileChanged, candidate_.path + " with another inode, size or time",
                          "the file that was checked; rescan the folders to check the new one")
            : make_reason(Code::kFileChanged,
                          fmt::format("{} ({})", candidate_.path, std::strerror(error_)),
                          "the file that was checked"));
    return false;
  }

  int fd() const { return fd_; }

 private:
  const Candidate& candidate_;
  int fd_;
  int error_;
};

// The files that were opened so far, by device and inode, with their stamps at that time.
struct OpenedFile {
  FileStamp stamp;
  std::string path;
};
struct Opened {
  Mutex mutex;
  std::map<std::pair<uint64_t, uint64_t>, OpenedFile> files;
};
Opened& opened = *new Opened;

bool is_same_content(const FileStamp& a, const FileStamp& b) {
  return a.size == b.size && a.mtime_ns == b.mtime_ns;
}

Reason overwritten(const std::string& path) {
  return {Code::kFileChanged, path + ", overwritten in place after it was loaded",
          "a new file that was renamed over the old one",
          "restart the program; replace plugins by rename"};
}

// Refuses a file that was overwritten in place while it was mapped: memory has neither its old
// content nor its new one.
bool is_overwritten(const Candidate& candidate, std::vector<Reason>* reasons) {
  const FileStamp& stamp = candidate.stamp;
  const std::lock_guard lock(opened.mutex);
  const auto known = opened.files.find({stamp.device, stamp.inode});
  if (known == opened.files.end() || is_same_content(known->second.stamp, stamp)) return false;
  reasons->push_back(overwritten(candidate.path));
  return true;
}

void remember(const Candidate& candidate) {
  const FileStamp& stamp = candidate.stamp;
  const std::lock_guard lock(opened.mutex);
  opened.files.try_emplace({stamp.device, stamp.inode}, OpenedFile{stamp, candidate.path});
}

// Adds an object of this process to a digest, by its address and name.
int add_object(dl_phdr_info* object, size_t, void* digest) {
  uint64_t& value = *static_cast<uint64_t*>(digest);
  const auto add = [&](uint64_t word) { value = (value ^ word) * 1099511628211u; };  // FNV-1a
  add(object->dlpi_addr);
  for (const char* at = object->dlpi_name; at != nullptr && *at != '\0'; ++at) {
    add(static_cast<unsigned char>(*at));
  }
  return 0;
}

// Returns a digest of the objects in this process. glibc has a counter of objects that were ever
// added, but it also counts those that were refused.
uint64_t objects_here() {
  uint64_t digest = 14695981039346656037u;
  visit_loaded_objects(add_object, &digest);
  return digest;
}

// Returns "at::detail" for "x.so: undefined symbol: at::detail, version V"; "" if there is no
// symbol.
std::string undefined_symbol(const std::string& message) {
  constexpr std::string_view kWords = "undefined symbol: ";
  const size_t at = message.find(kWords);
  if (at == message.npos) return {};
  const std::string rest = message.substr(at + kWords.size());
  return rest.substr(0, rest.find_first_of(" ,\n"));
}

// Returns `path` with a random series of "./" and ".//" before the file's name: the same file, in a
// spelling that nobody in this process has used.
std::string fresh_spelling(const std::string& path) {
  const size_t name = path.rfind('/') + 1;
  std::string text = path.substr(0, name);
  uint32_t bits = std::random_device{}();
  for (int i = 0; i < 32; ++i, bits >>= 1) text += (bits & 1) != 0 ? ".//" : "./";
  return text + path.substr(name);
}

// Returns true if the loader has an object for this spelling or else for the file's inode.
bool is_loaded(const std::string& path) {
  void* loaded = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (loaded != nullptr) dlclose(loaded);  // releases only the reference that was just taken
  return loaded != nullptr;
}

// The loader derives $ORIGIN from the path that it is given.
bool needs_origin(const FileFacts& file) {
  const auto names_it = [](const std::string& text) {
    return text.find("$ORIGIN") != text.npos || text.find("${ORIGIN}") != text.npos;
  };
  return names_it(file.rpath) || names_it(file.runpath) ||
         std::any_of(file.needed.begin(), file.needed.end(), names_it);
}

// The texts that rename_object has replaced. They are kept, since other code may be reading them.
struct OldNames {
  Mutex mutex;
  std::vector<char*> all;
};
OldNames& old_names = *new OldNames;

// Gives the object its own path instead of the path of the descriptor that it was opened by.
// Debuggers, and the plugin itself through dladdr, ask the loader for it.
void rename_object(void* handle, const std::string& opened, const std::string& path) {
  link_map* object = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &object) != 0 || object->l_name != opened) return;
  const std::lock_guard lock(old_names.mutex);
  old_names.all.push_back(object->l_name);
  if (char* name = strdup(path.c_str())) object->l_name = name;
}

}  // namespace

void* open_candidate(const Candidate& candidate, std::vector<Reason>* reasons) {
  const CheckedFile file(candidate);
  if (!file.check(reasons) || is_overwritten(candidate, reasons)) return nullptr;
  std::string path = needs_origin(candidate.file) ? "" : descriptor_path(file.fd());
  const bool is_by_descriptor = !path.empty();
  if (is_by_descriptor) {
    path = fresh_spelling(path);  // descriptor numbers are reused
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
  remember(candidate);
  // On failure the object stays open: its constructors have run, and may have left pointers into
  // it.
  if (is_by_descriptor) {
    rename_object(handle, path, candidate.path);
    return file.check(reasons) ? handle : nullptr;
  }
  return CheckedFile(candidate).check(reasons) ? handle : nullptr;
}

MissingDependency::MissingDependency(const std::vector<Reason>& reasons) {
  for (const Reason& reason : reasons) {
    if (reason.code != Code::kLoadFailed) continue;
    is_something_ = true;
    is_file_ = reason.found.find("cannot open shared object file") != std::string::npos;
    symbol_ = undefined_symbol(reason.found);
  }
  if (is_something_) objects_ = objects_here();
}

bool MissingDependency::may_be_available() const {
  if (!is_something_) return false;
  if (is_file_ || objects_here() != objects_) return true;
  return !symbol_.empty() && dlsym(RTLD_DEFAULT, symbol_.c_str()) != nullptr;
}

std::vector<Reason> overwritten_files() {
  std::vector<OpenedFile> files;
  {
    const std::lock_guard lock(opened.mutex);
    for (const auto& [_, file] : opened.files) files.push_back(file);
  }
  std::vector<Reason> reasons;
  for (const OpenedFile& file : files) {
    struct stat status{};
    if (stat(file.path.c_str(), &status) != 0) continue;
    const FileStamp now = stamp_of(status);
    if (now.device != file.stamp.device || now.inode != file.stamp.inode) continue;
    if (!is_same_content(now, file.stamp)) reasons.push_back(overwritten(file.path));
  }
  return reasons;
}

size_t opened_files() {
  const std::lock_guard lock(opened.mutex);
  return opened.files.size();
}

Reason loader_reason(const std::string& message, const std::string& path) {
  const Reason plain = make_reason(Code::kLoadFailed, message, "a file that the loader accepts");
  struct Row {
    const char* pattern;
    const char* advice;  // {0} is the first group of the pattern
  };
  static const Row kRows[] = {
      {"^([^[:space:]]+): cannot open shared object file: No such file",
       "install the library {0}, or put its folder into the plugin's RUNPATH"},
      {"undefined symbol: ([^[:space:]]+)",
       "link the library that defines {0} into the plugin (-Wl,-z,defs names it when linking), or "
       "load it with RTLD_GLOBAL: the next call asks again"},
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
    regex_t pattern;
    regmatch_t match[2];
    if (regcomp(&pattern, row.pattern, REG_EXTENDED) != 0) continue;  // no memory
    const bool found = regexec(&pattern, message.c_str(), 2, match, 0) == 0;
    regfree(&pattern);
    if (!found) continue;
    const std::string name = message.substr(match[1].rm_so, match[1].rm_eo - match[1].rm_so);
    if (name == path) return plain;
    return {Code::kLoadFailed, message, plain.wanted, fmt::format(fmt::runtime(row.advice), name)};
  }
  return plain;
}

}  // namespace opdock
