// SPDX-License-Identifier: Apache-2.0
#include "inspect/finder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>

#include "base/fd.h"
#include "base/utf8.h"
#include "discover/scan.h"
#include "inspect/native_names.h"

namespace opdock {
namespace {

constexpr int kMaxDepth = 200;  // deeper than any real tree

struct Entry {
  std::string name;
  unsigned char type;
};

// Lists a folder, sorted by name. Returns 0 or errno.
int list(const std::string& folder, std::vector<Entry>* entries) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open(opendir(folder.c_str()), closedir);
  if (open == nullptr) return errno;
  for (;;) {
    errno = 0;
    const dirent* entry = readdir(open.get());
    if (entry == nullptr) break;
    const std::string_view name(entry->d_name);
    if (name != "." && name != "..") entries->push_back({std::string(name), entry->d_type});
  }
  const int error = errno;
  std::sort(entries->begin(), entries->end(),
            [](const Entry& a, const Entry& b) { return a.name < b.name; });
  return error;
}

}  // namespace

std::string first_bytes_of(const std::string& path) {
  std::array<char, kMagicBytes> bytes{};
  const Fd file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  const ssize_t count = file ? read(file.get(), bytes.data(), bytes.size()) : -1;
  return count > 0 ? std::string(bytes.data(), static_cast<size_t>(count)) : "";
}

void Finder::take(const std::string& path) {
  ++num_files;
  const std::string_view name = file_name_of(path);
  const NativeKind kind = native_kind(name);
  const bool is_wheel = name.ends_with(".whl");
  if (kind == NativeKind::kOther && !is_wheel) return;
  struct stat status{};
  if (stat(path.c_str(), &status) != 0) {
    const bool is_link = errno == ENOENT;
    if (kind != NativeKind::kMaybe) {
      skipped.push_back({escape_bytes(path), open_reason(is_link ? ELOOP : errno, path)});
    }
    return;
  }
  if (!S_ISREG(status.st_mode)) return;
  if (!is_new(status.st_dev, status.st_ino)) return;
  if (!is_utf8(path)) {
    skipped.push_back({escape_bytes(path),
                       make_reason(Code::kNameInvalid, escape_bytes(path), "a path in UTF-8")});
  } else if (is_wheel) {
    wheels.push_back(path);
  } else if (kind == NativeKind::kForeign) {
    skipped.push_back({path, make_reason(Code::kForeignFile)});
  } else if (kind == NativeKind::kLibrary) {
    if (is_linker_script(first_bytes_of(path))) {
      skipped.push_back({path, make_reason(Code::kLinkerScript, "a linker script", "an ELF file")});
    } else {
      natives.push_back(path);
    }
  } else if (is_elf_magic(first_bytes_of(path))) {
    natives.push_back(path);
  }
}

void Finder::add(const std::string& path) {
  take(path);
}

void Finder::walk(const std::string& path) {
  visit(path, 0);
  // Links are followed last, so that a file counts by its own name if it has one here. This may add
  // further links.
  struct stat status{};
  for (size_t i = 0; i < links_.size(); ++i) {
    const std::string link = links_[i];
    if (stat(link.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) {
      visit(link, 0);
    } else {
      take(link);
    }
  }
  links_.clear();
}

void Finder::visit(const std::string& folder, int depth) {
  struct stat status{};
  if (stat(folder.c_str(), &status) != 0) {
    skipped.push_back({escape_bytes(folder), open_reason(errno, folder)});
    return;
  }
  if (!is_new(status.st_dev, status.st_ino)) return;
  std::vector<Entry> entries;
  const int error = depth < kMaxDepth ? list(folder, &entries) : ELOOP;
  if (error != 0) skipped.push_back({escape_bytes(folder), open_reason(error, folder)});
  const std::string below = folder == "/" ? folder : folder + "/";
  bool is_site = false;
  std::vector<std::string> folders;
  for (Entry& entry : entries) {
    const std::string path = below + entry.name;
    if (entry.type == DT_UNKNOWN) {
      const bool is_known = lstat(path.c_str(), &status) == 0;
      entry.type = !is_known                 ? DT_UNKNOWN
                   : S_ISDIR(status.st_mode) ? DT_DIR
                   : S_ISLNK(status.st_mode) ? DT_LNK
                   : S_ISREG(status.st_mode) ? DT_REG
                                             : DT_UNKNOWN;
    }
    is_site = is_site || entry.name.ends_with(".dist-info") || entry.name.ends_with(".egg-info");
    if (entry.type == DT_DIR) folders.push_back(path);
    if (entry.type == DT_LNK) links_.push_back(path);
    if (entry.type == DT_REG) take(path);
  }
  if (is_site) sites.push_back(folder);
  for (const std::string& path : folders) visit(path, depth + 1);
}

}  // namespace opdock
