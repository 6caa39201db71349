// SPDX-License-Identifier: Apache-2.0
#include "jit/nvrtc_files.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>

#include "base/mutex.h"
#include "facts/nvrtc_search.h"
#include "fmt/format.h"
#include "link/search.h"
#include "note/build_id.h"

namespace opdock {
namespace {

namespace fs = std::filesystem;

class File {
 public:
  explicit File(const std::string& path) : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  bool is_open() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  bool read(uint64_t offset, void* out, size_t size) const {
    return pread(fd_, out, size, static_cast<off_t>(offset)) == static_cast<ssize_t>(size);
  }
  uint64_t size() const {
    struct stat info{};
    return fstat(fd_, &info) == 0 ? static_cast<uint64_t>(info.st_size) : 0;
  }

 private:
  int fd_;
};

// Returns "12.9" for libnvrtc-builtins.so.12.9 next to the library, else what the library's name
// says.
Version nvrtc_version(const fs::path& library) {
  static constexpr std::string_view kBuiltins = "libnvrtc-builtins.so.";
  static constexpr std::string_view kLibrary = "libnvrtc.so.";
  const std::string own = library.filename().string();
  const Version named = own.starts_with(kLibrary)
                            ? Version::parse(own.substr(kLibrary.size())).value_or(Version())
                            : Version();
  Version best;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(library.parent_path(), failed)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kBuiltins)) continue;
    const std::optional<Version> version = Version::parse(name.substr(kBuiltins.size()));
    if (!version || (!named.empty() && version->major() != named.major())) continue;
    if (best < *version) best = *version;
  }
  return best.empty() ? named : Version{best.major(), best.minor()};
}

// Returns the headers that belong to the library: next to its lib folder, or in the cuda_runtime
// wheel next to its own. *tested (unless NULL) gets the files that it looks for.
std::string include_of(const fs::path& library, std::vector<std::string>* tested) {
  const fs::path lib = library.parent_path();
  std::error_code failed;
  for (const fs::path& folder :
       {lib.parent_path() / "include", lib.parent_path().parent_path() / "cuda_runtime/include",
        lib.parent_path().parent_path().parent_path() / "include"}) {
    if (tested != nullptr) tested->push_back(folder / "cuda_fp16.h");
    if (fs::is_regular_file(folder / "cuda_fp16.h", failed)) {
      return fs::canonical(folder, failed).string();
    }
  }
  return {};
}

// Adds the places where the loader finds a library that is given only by name.
void add_loader_places(std::vector<std::string>* out) {
  for (const char* place : {"/etc/ld.so.cache", "/lib", "/usr/lib", "/lib64", "/usr/lib64",
                            "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"})
    out->push_back(place);
  const char* folders = secure_getenv("LD_LIBRARY_PATH");
  std::string list = folders == nullptr ? "" : folders;
  while (!list.empty()) {
    const size_t end = std::min(list.find_first_of(":;"), list.size());
    if (end != 0) out->push_back(list.substr(0, end));
    list.erase(0, end + 1);
  }
}

struct Folders {
  Mutex mutex;
  std::vector<std::string> all;
};
Folders& added = *new Folders;

}  // namespace

std::string library_id(const std::string& path) {
  const File file(path);
  const std::string id = build_id(file.fd());
  return id.empty() ? fmt::format("{:016x}", file.size()) : id;
}

std::string library_problem(const std::string& path) {
  const File file(path);
  Elf64_Ehdr header;
  if (!file.is_open()) return path + ": " + std::strerror(errno);
  if (!file.read(0, &header, sizeof header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_phentsize != sizeof(Elf64_Phdr)) {
    return path + ": no shared object";
  }
  const uint64_t size = file.size();
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    const bool read = file.read(header.e_phoff + i * sizeof segment, &segment, sizeof segment);
    if (read && segment.p_type != PT_LOAD) continue;
    if (!read || segment.p_offset > size || segment.p_filesz > size - segment.p_offset) {
      return path + ": the file ends too early, after " + std::to_string(size) + " bytes";
    }
  }
  return {};
}

std::vector<std::string> find_nvrtc_paths(const std::vector<std::string>& folders,
                                          const Environment& environment,
                                          std::vector<std::string>* searched,
                                          std::vector<std::string>* tested) {
  if (tested != nullptr) add_loader_places(tested);
  std::vector<std::string> found;
  std::set<std::string> seen;
  for (const std::string& candidate : nvrtc_candidates(folders, environment, searched, tested)) {
    std::string path = candidate;
    if (path.find('/') == std::string::npos) {
      if (!environment.root.empty()) continue;  // the loader knows no other root
      path = find_library(path).value_or("");
      if (path.empty()) continue;
    }
    std::error_code failed;
    const fs::path real = fs::canonical(path, failed);
    if (!failed && seen.insert(real.string()).second) found.push_back(std::move(path));
  }
  return found;
}

std::vector<NvrtcFile> find_nvrtc_files(const std::vector<std::string>& folders,
                                        const Environment& environment,
                                        std::vector<std::string>* searched,
                                        std::vector<std::string>* tested) {
  std::vector<NvrtcFile> found;
  for (const std::string& path : find_nvrtc_paths(folders, environment, searched, tested)) {
    std::error_code failed;
    const fs::path real = fs::canonical(path, failed);
    if (failed) continue;
    found.push_back(
        {path, nvrtc_version(real), library_id(real.string()), include_of(real, tested)});
    if (tested == nullptr) continue;
    tested->push_back(path);
    tested->push_back(real.string());
    tested->push_back(real.parent_path().string());
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const NvrtcFile& a, const NvrtcFile& b) { return b.version < a.version; });
  return found;
}

void add_compiler_folder(const std::string& folder) {
  const std::lock_guard lock(added.mutex);
  if (std::find(added.all.begin(), added.all.end(), folder) == added.all.end()) {
    added.all.push_back(folder);
  }
}

std::vector<std::string> compiler_folders() {
  const std::lock_guard lock(added.mutex);
  return added.all;
}

}  // namespace opdock
