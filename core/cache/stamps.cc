// SPDX-License-Identifier: Apache-2.0
#include "cache/stamps.h"

#include <sys/stat.h>

#include <cstring>
#include <ctime>

namespace opdock {
namespace {

constexpr int64_t kSecond = 1000000000;
constexpr int64_t kSettled = 2 * kSecond;  // the tick of the coarsest file system clock: FAT's

int64_t nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * kSecond + time.tv_nsec;
}

std::string path_of(const std::string& folder, const std::string& name) {
  return name.empty() ? folder : folder + "/" + name;
}

}  // namespace

// Stored as its bytes, because a record is for one machine and one user.
struct Stamps::Stamp {
  // kWhole: all members count; kKind: only is_folder; kAbsent: there is none.
  enum Extent : uint64_t { kWhole, kKind, kAbsent };
  uint64_t extent = kWhole, is_folder = 0;
  uint64_t device = 0, inode = 0, size = 0;
  int64_t modified_ns = 0, changed_ns = 0;

  std::string bytes() const {
    std::string out(sizeof *this, '\0');
    std::memcpy(out.data(), this, sizeof *this);
    return out;
  }
  bool read(std::string_view bytes) {
    if (bytes.size() != sizeof *this) return false;
    std::memcpy(this, bytes.data(), sizeof *this);
    return true;
  }
};

bool Stamps::look(const std::string& path, bool only_kind, Stamp* out) {
  struct stat status{};
  if (stat(path.c_str(), &status) != 0) return false;
  *out = {};
  out->extent = only_kind ? Stamp::kKind : Stamp::kWhole;
  out->is_folder = S_ISDIR(status.st_mode);
  if (only_kind) return true;
  out->device = status.st_dev;
  out->inode = status.st_ino;
  out->size = static_cast<uint64_t>(status.st_size);
  out->modified_ns = nanoseconds(status.st_mtim);
  out->changed_ns = nanoseconds(status.st_ctim);
  return true;
}

int64_t Stamps::now_ns() {
  timespec time{};
  clock_gettime(CLOCK_REALTIME, &time);
  return nanoseconds(time);
}

Stamps::Stamps(std::string folder, int64_t begin_ns)
    : folder_(std::move(folder)), begin_ns_(begin_ns) {}

void Stamps::add(const std::string& name) {
  add(name, false);
}

void Stamps::add_kind(const std::string& name) {
  add(name, true);
}

void Stamps::add(const std::string& name, bool only_kind) {
  Stamp stamp;
  if (!look(path_of(folder_, name), only_kind, &stamp) ||
      stamp.changed_ns >= begin_ns_ - kSettled) {
    return invalidate();
  }
  seen_.emplace_back(name, stamp.bytes());
}

void Stamps::add_absent(const std::string& name) {
  Stamp stamp;
  if (look(path_of(folder_, name), true, &stamp)) return invalidate();
  stamp = {};
  stamp.extent = Stamp::kAbsent;
  seen_.emplace_back(name, stamp.bytes());
}

std::optional<std::string> Stamps::to_memo(std::string_view value) const {
  if (!is_sound_) return std::nullopt;
  std::vector<std::string> texts = {std::string(value)};
  for (const auto& [name, stamp] : seen_) {
    texts.push_back(name);
    texts.push_back(stamp);
  }
  std::string text = pack_texts(texts);
  if (!from_memo(folder_, text)) return std::nullopt;
  return text;
}

std::optional<std::string> Stamps::from_memo(const std::string& folder, std::string_view text) {
  std::optional<std::vector<std::string>> texts = unpack_texts(text);
  // A value and pairs; without any pair the value would hold for ever.
  if (!texts || texts->size() < 3 || texts->size() % 2 == 0) return std::nullopt;
  for (size_t i = 1; i < texts->size(); i += 2) {
    Stamp then, today;
    if (!then.read((*texts)[i + 1])) return std::nullopt;
    const bool is_there = look(path_of(folder, (*texts)[i]), then.extent == Stamp::kKind, &today);
    if (is_there == (then.extent == Stamp::kAbsent)) return std::nullopt;
    if (is_there && today.bytes() != (*texts)[i + 1]) return std::nullopt;
  }
  return std::move(texts->front());
}

std::string pack_texts(const std::vector<std::string>& texts) {
  std::string out;
  for (const std::string& text : texts) {
    const uint64_t size = text.size();
    out.append(reinterpret_cast<const char*>(&size), sizeof size);
    out += text;
  }
  return out;
}

std::optional<std::vector<std::string>> unpack_texts(std::string_view packed) {
  std::vector<std::string> texts;
  while (!packed.empty()) {
    uint64_t size = 0;
    if (packed.size() < sizeof size) return std::nullopt;
    std::memcpy(&size, packed.data(), sizeof size);
    packed.remove_prefix(sizeof size);
    if (packed.size() < size) return std::nullopt;
    texts.emplace_back(packed.substr(0, size));
    packed.remove_prefix(size);
  }
  return texts;
}

}  // namespace opdock
