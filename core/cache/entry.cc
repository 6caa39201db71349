// SPDX-License-Identifier: Apache-2.0
#include "cache/entry.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <thread>

#include "base/sha256.h"
#include "cache/layout.h"
#include "cache/locks.h"
#include "cache/stamps.h"
#include "fmt/format.h"

namespace opdock::cache {
namespace {

constexpr uint64_t kMaxEntryBytes = 4ull << 30;
constexpr int64_t kMarkSeconds = 3600;

OpenedEntry failed(OpenedEntry opened, OpenedEntry::State state, std::string problem) {
  opened.entry.reset();
  opened.state = state;
  opened.problem = std::move(problem);
  return opened;
}

// Returns kDamaged only for errors that are the entry's own fault, and not that of this process or
// its permissions.
OpenedEntry::State state_of(int error) {
  switch (error) {
    case ENOENT:
      return OpenedEntry::kMissing;
    case EIO:
    case EISDIR:
    case ENOTDIR:
    case ELOOP:
    case EFBIG:
    case ENXIO:
    case EOVERFLOW:
    case ESTALE:
      return OpenedEntry::kDamaged;
    default:
      return OpenedEntry::kUnreadable;
  }
}

// Takes the shared lock. An evictor holds its own only briefly, while it examines the entry, so
// this retries. On a file system without locks none is taken, and eviction goes by time.
int pin(int fd) {
  for (int attempt = 0; attempt < 50; ++attempt) {
    if (try_flock(fd, LOCK_SH) != EWOULDBLOCK) return 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return EWOULDBLOCK;
}

std::string check_one_file(const std::string& folder, const EntryFile& file, int* error) {
  std::string digest;
  uint64_t size = 0;
  *error = digest_file(folder + "/" + file.name, file.size, &digest, &size);
  if (*error != 0) return fmt::format("{}: {}", file.name, error_text(*error));
  if (size != file.size) return fmt::format("{} with {} bytes", file.name, size);
  return digest == file.sha256 ? std::string() : file.name + " with other bytes";
}

}  // namespace

// Checks the entry's files. On failure *error is 0 if a file has other bytes, else errno.
bool StoredEntry::check_files(const Layout* memos, int* error, std::string* problem) const {
  if (data_.files.empty()) return true;
  // The memo holds only for exactly this entry file, identified by the digest at its end.
  const std::string name = "files of " + folder_;
  const std::string value(bytes_.end() - sizeof(Digest), bytes_.end());
  if (memos != nullptr) {
    const std::optional<std::string> memo = recall(*memos, name);
    if (memo && Stamps::from_memo(folder_, *memo) == value) return true;
  }
  Stamps stamps(folder_);
  for (const EntryFile& file : data_.files) {
    stamps.add(file.name);
    *problem = check_one_file(folder_, file, error);
    if (!problem->empty()) return false;
  }
  if (memos == nullptr) return true;
  if (const std::optional<std::string> memo = stamps.to_memo(value)) remember(*memos, name, *memo);
  return true;
}

bool StoredEntry::blob(std::string_view name, std::span<const uint8_t>* out) const {
  *out = {};
  for (const EntryBlob& blob : data_.blobs) {
    if (blob.name != name) continue;
    *out = std::span(bytes_).subspan(blob.offset, blob.size);
    return true;
  }
  return false;
}

void StoredEntry::mark_used() {
  const int64_t now = now_seconds();
  // A time in the future, left by a clock that was wrong, is corrected too.
  if (used_ <= now && now - used_ < kMarkSeconds) return;
  // UTIME_NOW sets the file system's own time, so that the clocks of the machines that share it
  // need not agree.
  const timespec times[2] = {{0, UTIME_OMIT}, {0, UTIME_NOW}};
  if (futimens(pin_.get(), times) == 0) used_ = now;
}

OpenedEntry open_entry(const std::string& variant, bool check_files, const Layout* memos) {
  OpenedEntry opened;
  struct stat status{};
  if (lstat(variant.c_str(), &status) != 0) {
    return failed(std::move(opened), state_of(errno), error_text(errno));
  }
  opened.device = status.st_dev;
  opened.inode = status.st_ino;
  if (!S_ISDIR(status.st_mode) && !S_ISREG(status.st_mode)) {
    return failed(std::move(opened), OpenedEntry::kDamaged, "no file or folder");
  }
  auto entry = std::make_shared<StoredEntry>();
  entry->device_ = opened.device;
  entry->inode_ = opened.inode;
  if (S_ISDIR(status.st_mode)) entry->folder_ = variant;
  entry->path_ = S_ISDIR(status.st_mode) ? variant + "/entry" : variant;
  int error = open_file(entry->path_, O_RDONLY, 0, &entry->pin_);
  if (error == ENOENT && !entry->folder_.empty() && access(variant.c_str(), F_OK) == 0) {
    return failed(std::move(opened), OpenedEntry::kDamaged, "a folder without its entry file");
  }
  if (error != 0) return failed(std::move(opened), state_of(error), error_text(error));
  if (pin(entry->pin_.get()) != 0) {
    return failed(std::move(opened), OpenedEntry::kBusy, "an entry that is being removed");
  }
  struct stat held{};
  if (fstat(entry->pin_.get(), &held) != 0 || stat(entry->path_.c_str(), &status) != 0 ||
      held.st_ino != status.st_ino || held.st_dev != status.st_dev) {
    return failed(std::move(opened), OpenedEntry::kMissing, "an entry that was just removed");
  }
  error = read_all(entry->pin_.get(), kMaxEntryBytes, &entry->bytes_);
  if (error != 0) return failed(std::move(opened), state_of(error), error_text(error));
  entry->size_ = entry->bytes_.size();
  entry->used_ = held.st_mtim.tv_sec;
  std::string problem;
  switch (decode_entry(entry->bytes_, &entry->data_, &problem)) {
    case EntryState::kGood:
      break;
    case EntryState::kDamaged:
      return failed(std::move(opened), OpenedEntry::kDamaged, problem);
    case EntryState::kNewer:
      return failed(std::move(opened), OpenedEntry::kNewer, problem);
  }
  const EntryData& data = entry->data_;
  const std::string wanted = fmt::format("/{}/{}/{}/{}", data.kind, data.key.substr(0, 2), data.key,
                                         maker_name(data.maker));
  if (!variant.ends_with(wanted)) {
    return failed(std::move(opened), OpenedEntry::kDamaged, "the entry of another request");
  }
  for (const EntryFile& file : data.files) entry->size_ += file.size;
  if (check_files && !entry->check_files(memos, &error, &problem)) {
    // A missing file is damage; a file that cannot be opened now may be intact.
    const bool is_damage =
        error == 0 || error == ENOENT || state_of(error) == OpenedEntry::kDamaged;
    return failed(std::move(opened), is_damage ? OpenedEntry::kDamaged : OpenedEntry::kUnreadable,
                  problem);
  }
  opened.state = OpenedEntry::kGood;
  opened.entry = std::move(entry);
  return opened;
}

}  // namespace opdock::cache
