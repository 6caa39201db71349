// SPDX-License-Identifier: Apache-2.0
#include "build/sources.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <deque>
#include <filesystem>
#include <map>
#include <set>

#include "base/fd.h"
#include "base/sha256.h"
#include "build/named_files.h"
#include "jit/includes.h"

namespace opdock {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxSourceBytes = 256ull << 20;
constexpr size_t kMaxSourceFiles = 10000;
constexpr char kRules[] = "meson.build";

std::string folder_of(const std::string& name) {
  return fs::path(name).parent_path().generic_string();
}

// Returns the name relative to the plugin's folder: "deep/er.h" for "./er.h" named in "deep"; empty
// for a name that is absolute or lies outside.
std::string inner_name(const std::string& folder, const std::string& name) {
  if (name.empty() || name.front() == '/' || name.find('\0') != name.npos) return {};
  std::string inner = (fs::path(folder) / name).lexically_normal().generic_string();
  while (inner.ends_with('/')) inner.pop_back();
  return inner == "." || inner == ".." || inner.starts_with("../") ? std::string() : inner;
}

class SourceWalk {
 public:
  SourceWalk(const Manifest& manifest, Progress* progress, std::vector<Reason>* reasons,
             Stamps* stamps)
      : folder_(manifest.folder().string()),
        progress_(progress),
        reasons_(reasons),
        stamps_(stamps) {
    // The build rules come first, because they name the folders to search for headers.
    take(kRules);
    take(manifest.path.filename().string());
    for (const std::string& name : manifest.sources) take(inner_name("", name));
    if (manifest.device) {
      for (const std::string& name : manifest.device->sources) take(inner_name("", name));
    }
    take(inner_name("", manifest.reference));
    take_includes(manifest);
  }

  bool run(std::vector<SourceFile>* files) {
    for (; !rules_.empty() || !others_.empty();) {
      std::deque<std::string>& queue = rules_.empty() ? others_ : rules_;
      const std::string name = std::move(queue.front());
      queue.pop_front();
      if (!read_one(name)) return false;
    }
    for (auto& [name, digest] : digests_) files->push_back({name, std::move(digest)});
    return true;
  }

 private:
  // Records the file or folder, if there is one, and queues a file for reading. Returns whether it
  // is a file.
  bool take(const std::string& name) {
    if (name.empty()) return false;
    struct stat status{};
    const std::string path = folder_ + "/" + name;
    if (lstat(path.c_str(), &status) != 0) {
      miss(name);
      return false;
    }
    // A dangling link counts as a file that cannot be read.
    const bool is_there = stat(path.c_str(), &status) == 0;
    if (is_there && S_ISDIR(status.st_mode)) {
      if (stamps_ != nullptr && noted_.insert(name + "/").second) stamps_->add_kind(name);
      return false;
    }
    if (digests_.try_emplace(name, "unreadable").second)
      (fs::path(name).filename() == kRules ? rules_ : others_).push_back(name);
    return true;
  }

  // Records a missing name: a file that appears there later would count, and changes the stamp of
  // the nearest existing folder above it.
  void miss(const std::string& name) {
    if (stamps_ == nullptr) return;
    std::string above = folder_of(name);
    std::error_code failed;
    while (!above.empty() && !fs::is_directory(folder_ + "/" + above, failed))
      above = folder_of(above);
    if (noted_.insert(above).second) stamps_->add(above);
  }

  // Takes everything in the include folders, whether or not anything includes it, because a
  // compiler searches them.
  void take_includes(const Manifest& manifest) {
    for (const std::string& name :
         files_of_includes(manifest.build, manifest.folder(), kMaxSourceFiles + 1)) {
      if (!name.ends_with('/')) {
        take(name);
      } else if (digests_.try_emplace(name, "folder").second && stamps_ != nullptr) {
        stamps_->add(name.substr(0, name.size() - 1));
      }
    }
  }

  void take_text(const std::string& text, const std::string& from) {
    const std::string name = inner_name(from, text);
    std::error_code failed;
    if (name.empty() || take(name) || !fs::is_directory(folder_ + "/" + name, failed)) return;
    if (!digests_.try_emplace(name + "/", "folder").second) return;
    folders_.push_back(name);
    take(name + "/" + kRules);
  }

  void take_include(const Include& include, const std::string& from) {
    if (include.computed) return;  // the compiler will not find it unless plugin.toml names it
    if (include.quoted && take(inner_name(from, include.name))) return;
    for (const std::string& folder : folders_) take(inner_name(folder, include.name));
  }

  bool read_one(const std::string& name) {
    const std::string path = folder_ + "/" + name, from = folder_of(name);
    if (stamps_ != nullptr) stamps_->add(name);
    if (digests_.size() > kMaxSourceFiles) {
      return refuse(
          fmt::format("more than {} files that {} is built from", kMaxSourceFiles, folder_),
          "fewer");
    }
    // O_NONBLOCK: a FIFO among the files must not block the open.
    const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat status{};
    const bool is_file = file && fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode);
    const bool is_rules = fs::path(name).filename() == kRules;
    LineCutter lines([&](std::string_view line) {
      if (is_rules) {
        for (const std::string& text : texts_of(line)) take_text(text, from);
      } else {
        for (const Include& include : includes_of(line)) take_include(include, from);
      }
    });
    std::string digest;
    // The size is checked before and during reading, because a file may grow.
    if (is_file && (!has_room(name, static_cast<uint64_t>(status.st_size)) ||
                    !hash(file.get(), name, &lines, &digest))) {
      return false;
    }
    lines.finish();
    if (!digest.empty()) {
      digests_[name] = digest;
    } else if (stamps_ != nullptr) {
      stamps_->invalidate();
    }
    return true;
  }

  // Hashes the file and passes its text to `lines`. Returns false if the walk must stop; *digest
  // stays empty if the file cannot be read.
  bool hash(int fd, const std::string& name, LineCutter* lines, std::string* digest) {
    Sha256 hasher;
    std::vector<uint8_t> buffer(1 << 16);
    while (true) {
      const ssize_t count = read(fd, buffer.data(), buffer.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return true;
      if (count == 0) break;
      if (is_cancelled() || !has_room(name, static_cast<uint64_t>(count))) return false;
      bytes_ += static_cast<uint64_t>(count);
      hasher.add({buffer.data(), static_cast<size_t>(count)});
      lines->add({reinterpret_cast<const char*>(buffer.data()), static_cast<size_t>(count)});
    }
    *digest = to_hex(hasher.finish());
    return true;
  }

  bool has_room(const std::string& name, uint64_t more) {
    if (more <= kMaxSourceBytes - bytes_) return true;
    return refuse(fmt::format("{}/{}, of {} bytes, {} with what else it is built from", folder_,
                              name, more, bytes_ + more),
                  fmt::format("at most {} bytes in all", kMaxSourceBytes));
  }

  bool refuse(std::string found, std::string wanted) {
    if (reasons_ != nullptr)
      reasons_->push_back(make_reason(Code::kSourceTooLarge, std::move(found), std::move(wanted)));
    return false;
  }

  // Calls the hook at most every 20 ms, because it may be slow (an interpreter's lock).
  bool is_cancelled() {
    const auto now = std::chrono::steady_clock::now();
    if (progress_ == nullptr || now < next_question_) return false;
    next_question_ = now + std::chrono::milliseconds(20);
    if (!progress_->cancelled()) return false;
    if (reasons_ != nullptr) reasons_->push_back(make_reason(Code::kCancelled));
    return true;
  }

  const std::string folder_;
  Progress* const progress_;
  std::vector<Reason>* const reasons_;
  Stamps* const stamps_;
  std::chrono::steady_clock::time_point next_question_ =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
  std::map<std::string, std::string> digests_;  // digests of files, keyed by name
  std::deque<std::string> rules_, others_;      // to be read: meson.build files, and the rest
  std::vector<std::string> folders_ = {""};     // searched for headers
  std::set<std::string> noted_;                 // names that the stamps have already
  uint64_t bytes_ = 0;
};

}  // namespace

bool list_sources(const Manifest& manifest, Progress* progress, std::vector<SourceFile>* files,
                  std::vector<Reason>* reasons, Stamps* stamps) {
  return SourceWalk(manifest, progress, reasons, stamps).run(files);
}

}  // namespace opdock
