// Publishes entries, and makes folders to build in.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <set>

#include "cache/evict.h"
#include "cache/store.h"

namespace opdock::cache {
namespace {

constexpr const char* kCacheTag =
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# A cache of Opdock, which can make all of it again. See https://bford.info/cachedir/\n";

// Marks the folder so that backup programs skip it. Best effort.
void write_cache_tag(const std::string& root) {
  Fd fd;
  if (open_file(root + "/CACHEDIR.TAG", O_WRONLY | O_CREAT | O_EXCL, 0600, &fd) != 0) return;
  write_all(fd.get(), kCacheTag);
}

// Removes everything that is not listed, so that nothing else is published. Folders above a listed
// file stay.
void keep_only(const std::string& folder, const std::string& prefix,
               const std::set<std::string>& files) {
  std::vector<std::string> names;
  list_folder(folder, &names);
  for (const std::string& name : names) {
    const std::string path = folder + "/" + name, inner = prefix + name;
    if (files.count(inner) != 0) continue;
    const auto below = files.lower_bound(inner + "/");
    struct stat status{};
    const bool is_on_the_way = below != files.end() && below->starts_with(inner + "/") &&
                               lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
    if (is_on_the_way) {
      keep_only(path, inner + "/", files);
    } else {
      remove_tree(path);
    }
  }
}

// Sets the mode of a file that is to be published, syncs it, and computes its digest. Returns 0 or
// errno.
int settle_file(const std::string& folder, const std::string& name, EntryFile* out) {
  const std::string path = folder + "/" + name;
  Fd fd;
  if (const int error = open_file(path, O_RDONLY, 0, &fd)) return error;
  struct stat status{};
  if (fstat(fd.get(), &status) != 0) return errno;
  if (!S_ISREG(status.st_mode)) return EISDIR;
  // The file keeps the mode that the umask gave it, so that other users can use a copy of it.
  if (fchmod(fd.get(), (status.st_mode & 0755) | 0600) != 0) return errno;
  if (const int error = sync_file(fd.get())) return error;
  out->name = name;
  return digest_file(path, UINT64_MAX, &out->sha256, &out->size);
}

// Writes a new file durably and leaves it open. Returns 0 or errno.
int write_file(const std::string& path, std::string_view bytes, Fd* out) {
  if (const int error = open_file(path, O_RDWR | O_CREAT | O_EXCL, 0600, out)) return error;
  // The lock shows that the file's maker is alive. Without locks, an eviction goes by the file's
  // age.
  try_flock(out->get(), LOCK_SH);
  if (const int error = write_all(out->get(), bytes)) return error;
  return sync_file(out->get());
}

}  // namespace

int prepare_folder(const std::string& root, const std::string& folder,
                   std::vector<std::string>* changed) {
  std::vector<std::string> made;
  const int error = make_folders(folder, &made);
  if (error == 0 && !made.empty()) write_cache_tag(root);
  if (changed != nullptr) *changed = std::move(made);
  return error;
}

int Store::prepare(const std::string& folder, std::vector<std::string>* changed) {
  return prepare_folder(layout_.root, folder, changed);
}

std::shared_ptr<CacheEntry> Store::put_in_place(const std::string& temp, const std::string& variant,
                                                std::vector<std::string> changed,
                                                std::vector<Reason>* reasons) {
  const auto refuse = [&](int error) {
    add_reason(reasons, Code::kCacheWrite, variant + ": " + error_text(error),
               "a cache that can be written");
    return nullptr;
  };
  for (int attempt = 0; attempt < 3; ++attempt) {
    int error = make_folders(parent_of(variant), &changed);
    if (error == 0) error = rename_new(temp, variant);
    if (error == ENOENT && attempt < 2 && access(temp.c_str(), F_OK) == 0) {
      continue;  // the empty folder was swept between its creation and its use
    }
    const bool is_ours = error == 0;
    if (is_ours) {
      error = sync_folder(parent_of(variant));
      for (const std::string& folder : changed) {
        if (error == 0) error = sync_folder(folder);
      }
    }
    if (is_ours && error != 0) {  // after a crash it may be gone, so it does not count as published
      if (rename(variant.c_str(), temp.c_str()) != 0) remove_tree(variant);
    }
    if (error != 0 && error != EEXIST) return refuse(error);
    const OpenedEntry opened = open_entry(variant);
    if (opened.state == OpenedEntry::kGood) {
      if (is_ours) after_publishing(*opened.entry);
      return opened.entry;
    }
    report_unfit(layout_, variant, opened, reasons);
    // The variant that is there stays.
    if (opened.state == OpenedEntry::kNewer || opened.state == OpenedEntry::kUnreadable)
      return nullptr;
    if (is_ours) break;  // this call's own, and already gone or damaged
  }
  add_reason(reasons, Code::kCacheWrite, variant + ", which does not stay as it is written",
             "a file system that keeps what is written");
  return nullptr;
}

std::shared_ptr<CacheEntry> Store::publish_blobs(const CacheRequest& request,
                                                 const CacheMaker& maker,
                                                 const std::vector<CacheBlob>& blobs,
                                                 std::vector<Reason>* reasons) {
  if (!is_usable(reasons)) return nullptr;
  const EntryData data = entry_data(request, maker);
  const std::string temp = layout_.temp() + "/" + unique_name();
  std::vector<std::string> changed;
  int error = prepare(layout_.temp(), &changed);
  Fd file;
  if (error == 0) error = write_file(temp, encode_entry(data, blobs), &file);
  std::shared_ptr<CacheEntry> entry;
  if (error == 0) {
    // lock() may have made these folders before, and does not sync them.
    changed.insert(changed.end(), {layout_.base(), layout_.root});
    entry = put_in_place(temp, layout_.variant(data.kind, data.key, maker), std::move(changed),
                         reasons);
  } else {
    add_reason(reasons, Code::kCacheWrite, temp + ": " + error_text(error),
               "a cache that can be written");
  }
  unlink(temp.c_str());  // left over if another was first or something failed
  return entry;
}

bool Store::replace_blobs(const CacheRequest& request, const CacheMaker& maker,
                          const std::vector<CacheBlob>& blobs, std::vector<Reason>* reasons) {
  if (!is_usable(reasons)) return false;
  const EntryData data = entry_data(request, maker);
  const std::string temp = layout_.temp() + "/" + unique_name(),
                    variant = layout_.variant(data.kind, data.key, maker);
  std::vector<std::string> changed;
  int error = 0;
  if (blobs.empty()) {
    if (unlink(variant.c_str()) != 0 && errno != ENOENT) error = errno;
  } else {
    Fd file;
    error = prepare(layout_.temp(), &changed);
    if (error == 0) error = write_file(temp, encode_entry(data, blobs), &file);
    // lock() may have made these folders before, and does not sync them.
    changed.insert(changed.end(), {layout_.base(), layout_.root});
    if (error == 0) error = make_folders(parent_of(variant), &changed);
    if (error == 0 && rename(temp.c_str(), variant.c_str()) != 0) error = errno;
    if (error == 0) error = sync_folder(parent_of(variant));
    for (const std::string& folder : changed) {
      if (error == 0) error = sync_folder(folder);
    }
    unlink(temp.c_str());  // left over after a failure
  }
  if (error == 0) return true;
  add_reason(reasons, Code::kCacheWrite, variant + ": " + error_text(error),
             "a cache that can be written");
  return false;
}

std::optional<std::string> Store::make_folder(std::vector<Reason>* reasons) {
  if (!is_usable(reasons)) return std::nullopt;
  const std::string folder = layout_.temp() + "/" + unique_name();
  auto lock = std::make_unique<LockFile>();
  int error = prepare(layout_.temp());
  if (error == 0) error = lock->open(folder + ".lock");
  if (error == 0) {
    const int lock_error = lock->try_lock();  // without locks, an eviction goes by its age
    if (lock_error == 0) lock->write_holder("a build");
    if (lock_error == ESTALE || mkdir(folder.c_str(), 0700) != 0) {
      error = lock_error == ESTALE ? ESTALE : errno;
      unlink((folder + ".lock").c_str());
    }
  }
  if (error != 0) {
    add_reason(reasons, Code::kCacheWrite, folder + ": " + error_text(error),
               "a cache that can be written");
    return std::nullopt;
  }
  const std::lock_guard guard(mutex_);
  folders_[folder] = {getpid(), std::move(lock)};
  return folder;
}

void Store::discard_folder(const std::string& folder) {
  std::unique_ptr<LockFile> lock;
  {
    const std::lock_guard guard(mutex_);
    const auto found = folders_.find(folder);
    if (found == folders_.end()) return;
    if (found->second.maker != getpid()) return;
    lock = std::move(found->second.lock);
    folders_.erase(found);
  }
  remove_tree(folder);
  unlink((folder + ".lock").c_str());
}

std::shared_ptr<CacheEntry> Store::publish_folder(const CacheRequest& request,
                                                  const CacheMaker& maker,
                                                  const std::string& folder,
                                                  const std::vector<std::string>& files,
                                                  std::vector<Reason>* reasons) {
  if (!is_usable(reasons)) return nullptr;
  EntryData data = entry_data(request, maker);
  const auto refuse = [&](const std::string& what, const std::string& wanted) {
    add_reason(reasons, Code::kCacheWrite, folder + "/" + what, wanted);
    return nullptr;
  };
  {
    const std::lock_guard guard(mutex_);
    if (folders_.count(folder) == 0) return refuse("", "a folder that make_folder gave");
  }
  for (const std::string& name : files) {
    if (!is_inner_name(name) || name == "entry") return refuse(name, "a relative file name");
  }
  keep_only(folder, "", {files.begin(), files.end()});
  std::set<std::string> folders = {folder};
  for (const std::string& name : files) {
    EntryFile file;
    if (const int error = settle_file(folder, name, &file)) {
      return refuse(name + ": " + error_text(error), "a file to publish");
    }
    data.files.push_back(file);
    for (std::string path = parent_of(folder + "/" + name); path.size() > folder.size();
         path = parent_of(path)) {
      folders.insert(path);
    }
  }
  Fd file;
  int error = write_file(folder + "/entry", encode_entry(data, {}), &file);
  for (const std::string& path : folders) {
    if (error == 0) error = sync_folder(path);
  }
  std::shared_ptr<CacheEntry> entry;
  if (error == 0) {
    entry = put_in_place(folder, layout_.variant(data.kind, data.key, maker),
                         {layout_.base(), layout_.root}, reasons);
  } else {
    refuse("entry: " + error_text(error), "a cache that can be written");
  }
  if (entry == nullptr) {
    unlink((folder + "/entry").c_str());  // the caller may use the files, or discard the folder
  } else {
    discard_folder(folder);  // if another was first; otherwise only the lock is left of it
  }
  return entry;
}

void Store::after_publishing(const StoredEntry& entry) {
  record_history(layout_, entry.data());
  forget_failure_of(layout_, entry.key(), entry.maker());
  evict_if_due(layout_, max_bytes_, entry.bytes());
}

}  // namespace opdock::cache
