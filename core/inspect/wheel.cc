// SPDX-License-Identifier: Apache-2.0
#include "inspect/wheel.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/utf8.h"
#include "fmt/format.h"
#include "inspect/native_names.h"
#include "inspect/unpack.h"

namespace opdock {
namespace {

bool is_metadata(const std::string& name) {
  return name.ends_with(".dist-info/METADATA") && std::count(name.begin(), name.end(), '/') == 1;
}

// Members from this size on are unpacked once; smaller ones are unpacked on each request.
constexpr uint64_t kLargeMember = 4 << 20;
// Limits for the large members that are kept: descriptors, and space where TMPDIR is.
constexpr size_t kMaxKept = 64;
constexpr uint64_t kMaxKeptBytes = uint64_t{4} << 30;
constexpr size_t kMaxSkipped = 100;                  // members that are reported one by one
constexpr uint64_t kMaxMetadataBytes = 16ull << 20;  // bytes

// The folder of packages in an environment as installers lay it out, without the version of its
// Python, which is open.
constexpr std::string_view kSite = "/lib/python3/site-packages";

// Returns where a member of that name is installed, or what lies at that path below the wheel's
// own: "/lib/python3/site-packages/foo/x.so" for "foo/./x.so" and "foo-1.0.data/platlib/foo/x.so",
// "/bin/tool" for "foo-1.0.data/scripts/tool". Empty: above the environment.
std::string installed_place(std::string_view name) {
  std::string place = std::string(kSite) + "/" + std::string(name);
  const size_t slash = std::min(name.find('/'), name.size());
  if (name.substr(0, slash).ends_with(".data")) {
    static constexpr std::pair<std::string_view, std::string_view> kSchemes[] = {
        {"/platlib/", kSite}, {"/purelib/", kSite}, {"/scripts/", "/bin"}, {"/data/", ""}};
    for (const auto& [scheme, folder] : kSchemes) {
      if (!name.substr(slash).starts_with(scheme)) continue;
      place = std::string(folder) + "/" + std::string(name.substr(slash + scheme.size()));
    }
  }
  place = plain_path("/environment" + place);
  constexpr std::string_view kTop = "/environment/";
  if (!place.starts_with(kTop)) return "";
  place.erase(0, kTop.size() - 1);
  // "lib/python3.11" stands for the folder of whichever Python the wheel is installed for.
  constexpr std::string_view kPython = "/lib/python3";
  const size_t end = place.find('/', kPython.size());
  if (place.starts_with(kPython) && end != place.npos) {
    place.erase(kPython.size(), end - kPython.size());
  }
  return place;
}

Reason member_reason(const std::string& problem) {
  return make_reason(Code::kWheelMember, problem, "a member as wheels have them");
}

// Reads the member's first bytes, at most `most`.
bool read_text(const Zip& zip, const ZipEntry& entry, uint64_t most, std::string* text,
               std::string* problem) {
  return zip.read(
      entry, most,
      [&](const uint8_t* bytes, size_t count) {
        text->append(reinterpret_cast<const char*>(bytes), count);
        return true;
      },
      problem);
}

}  // namespace

WheelName parse_wheel_name(const std::string& file_name) {
  std::string stem = file_name;
  if (stem.ends_with(".whl")) stem.resize(stem.size() - 4);
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= stem.size();) {
    const size_t end = std::min(stem.find('-', begin), stem.size());
    parts.push_back(stem.substr(begin, end - begin));
    begin = end + 1;
  }
  if (parts.size() != 5 && parts.size() != 6) return {stem, "", "", "", ""};
  return {parts[0], parts[1], parts[parts.size() - 3], parts[parts.size() - 2], parts.back()};
}

std::shared_ptr<const Wheel> Wheel::read(const std::string& path, std::vector<Reason>* reasons) {
  std::optional<OpenFile> file = Files().open(path, reasons);
  if (!file) return nullptr;
  std::string problem;
  const std::optional<Zip> zip = Zip::open(file->fd.get(), file->size, &problem);
  if (!zip) {
    reasons->push_back(make_reason(Code::kWheelDamaged, problem, "a whole zip archive"));
    return nullptr;
  }
  const std::shared_ptr<Wheel> wheel(new Wheel(path, std::move(*file), *zip));
  wheel->name_ = parse_wheel_name(std::string(file_name_of(path)));
  wheel->list(reasons);
  return wheel;
}

void Wheel::skip(const std::string& name, Reason reason) {
  if (skipped_.size() < kMaxSkipped) {
    skipped_.push_back({path_ + "/" + escape_bytes(name), std::move(reason)});
  } else {
    ++not_told_;
  }
}

std::string Wheel::path_below(const std::string& place, const std::string& name) const {
  const bool is_in_site = place.starts_with(std::string(kSite) + "/");
  return path_ + (is_in_site ? place.substr(kSite.size()) : "/" + name);
}

// Keeps a member that may be native code or that describes the package; the rest is passed over.
void Wheel::keep(ZipEntry entry) {
  // All names are checked, whatever the members are for, because installers would write them all.
  if (const std::string problem = unsafe_name(entry.name); !problem.empty()) {
    skip(entry.name, member_reason(problem));
    return;
  }
  if (entry.is_link) {
    skip(entry.name, member_reason("a symbolic link, which wheels cannot have"));
    return;
  }
  const NativeKind kind = native_kind(file_name_of(entry.name));
  if (!entry.is_folder && entry.name.ends_with(".py")) {
    sources_.push_back({path_below(installed_place(entry.name), entry.name), entry.name});
    texts_.insert_or_assign(installed_place(entry.name), std::move(entry));
    return;
  }
  if (entry.is_folder || kind == NativeKind::kOther) return;
  const std::string place = installed_place(entry.name);
  if (place == kSite) {
    skip(entry.name, member_reason("a name that is the wheel's own folder"));
    return;
  }
  const auto known = entries_.find(place);
  if (known == entries_.end()) {
    entries_.emplace(place, std::move(entry));
    return;
  }
  // As with installers, a later member overwrites an earlier one.
  skip(known->second.name,
       make_reason(Code::kWheelDuplicate, "a later member in the same place", "each file once"));
  known->second = std::move(entry);
}

// Removes members that share bytes with another one. This is how a small archive holds petabytes,
// and no tool packs that way.
void Wheel::check_overlaps() {
  struct Range {
    uint64_t begin, end;
    std::string place;
  };
  std::vector<Range> ranges;
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    std::string problem;
    const std::optional<uint64_t> data = zip_.find_data(entry->second, &problem);
    if (!data) {
      skip(entry->second.name, member_reason(problem));
      entry = entries_.erase(entry);
      continue;
    }
    ranges.push_back({entry->second.header, *data + entry->second.packed, entry->first});
    ++entry;
  }
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  uint64_t end = 0;
  for (const Range& range : ranges) {
    if (range.begin < end) {
      const auto entry = entries_.find(range.place);
      skip(entry->second.name, member_reason("bytes that belong to another member too"));
      entries_.erase(entry);
    }
    end = std::max(end, range.end);
  }
}

void Wheel::list(std::vector<Reason>* reasons) {
  std::string problem;
  const bool is_whole = zip_.for_each(
      [&](ZipEntry&& entry) {
        keep(std::move(entry));
        return true;
      },
      &problem);
  if (!is_whole) {
    reasons->push_back(make_reason(Code::kWheelDamaged, problem, "a whole zip archive"));
  }
  check_overlaps();
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const ZipEntry& member = entry->second;
    const NativeKind kind = native_kind(file_name_of(member.name));
    bool is_member = kind == NativeKind::kLibrary;
    if (kind == NativeKind::kForeign) {
      skip(member.name, make_reason(Code::kForeignFile));
    } else if (is_metadata(member.name) && metadata_.empty()) {
      const bool was_read = read_text(zip_, member, kMaxMetadataBytes, &metadata_, &problem);
      if (!was_read) {
        skip(member.name, member_reason(problem));
        metadata_.clear();
      }
    } else if (kind == NativeKind::kMaybe) {
      std::string start;
      const bool was_read = read_text(zip_, member, kMagicBytes, &start, &problem);
      if (!was_read) skip(member.name, member_reason(problem));
      is_member = is_elf_magic(start);
    }
    if (is_member) {
      members_.push_back({path_below(entry->first, member.name), member.name});
      ++entry;
    } else {
      entry = entries_.erase(entry);
    }
  }
  if (not_told_ != 0) {
    skipped_.push_back(
        {path_, member_reason(fmt::format("{} more members of such kinds", not_told_))});
  }
}

const ZipEntry* Wheel::find(const std::string& path) const {
  const std::string place = installed_place(std::string_view(path).substr(path_.size() + 1));
  if (const auto entry = entries_.find(place); entry != entries_.end()) return &entry->second;
  const auto text = texts_.find(place);
  return text == texts_.end() ? nullptr : &text->second;
}

std::optional<FileIdentity> Wheel::identify(const std::string& path) const {
  if (!path.starts_with(path_ + "/")) return Files::identify(path);
  const ZipEntry* entry = find(path);
  if (entry == nullptr) return std::nullopt;
  return identity_of(*entry);
}

FileIdentity Wheel::identity_of(const ZipEntry& entry) const {
  FileIdentity identity = file_.identity;
  identity.part = entry.position + 1;
  identity.size = entry.size;
  return identity;
}

bool Wheel::is_folder(const std::string& path) const {
  if (!path.starts_with(path_ + "/")) return Files::is_folder(path);
  const std::string place = installed_place(std::string_view(path).substr(path_.size() + 1));
  if (place.empty()) return false;
  const std::string below = place + "/";
  const auto first = entries_.lower_bound(below);
  return first != entries_.end() && first->first.starts_with(below);
}

std::string Wheel::other_kind(const std::string& path) const {
  if (!path.starts_with(path_ + "/")) return Files::other_kind(path);
  return is_folder(path) ? "a folder" : "";
}

std::optional<Fd> Wheel::unpacked(const ZipEntry& entry, std::string* problem) const {
  if (entry.size < kLargeMember) return unpack_member(zip_, entry, problem);
  std::shared_ptr<Unpacked> known;
  {
    const std::lock_guard lock(mutex_);
    const auto found = unpacked_.find(entry.position);
    if (found != unpacked_.end()) {
      known = found->second;
    } else if (unpacked_.size() < kMaxKept && kept_bytes_ + entry.size <= kMaxKeptBytes) {
      kept_bytes_ += entry.size;
      known = unpacked_[entry.position] = std::make_shared<Unpacked>();
    }
  }
  if (known == nullptr) return unpack_member(zip_, entry, problem);
  const std::lock_guard lock(known->mutex);
  if (!known->fd) {
    std::optional<Fd> file = unpack_member(zip_, entry, problem);
    if (!file) return std::nullopt;
    known->fd = std::move(*file);
  }
  Fd copy(fcntl(known->fd.get(), F_DUPFD_CLOEXEC, 0));
  if (copy) return copy;
  *problem = std::string("no more files can be opened (") + std::strerror(errno) + ")";
  return std::nullopt;
}

std::optional<OpenFile> Wheel::open(const std::string& path, std::vector<Reason>* reasons) const {
  if (!path.starts_with(path_ + "/")) return Files::open(path, reasons);
  const ZipEntry* entry = find(path);
  if (entry == nullptr) {
    if (reasons != nullptr) {
      reasons->push_back(make_reason(Code::kPathMissing, path + ", which the wheel does not have",
                                     "a member of the wheel"));
    }
    return std::nullopt;
  }
  std::string problem;
  std::optional<Fd> file = unpacked(*entry, &problem);
  if (!file) {
    if (reasons != nullptr) reasons->push_back(member_reason(problem));
    return std::nullopt;
  }
  return OpenFile{std::move(*file), entry->size, identity_of(*entry)};
}

std::shared_ptr<const Files> files_at(const std::string& path) {
  constexpr std::string_view kEnd = ".whl/";
  for (size_t at = path.find(kEnd); at != path.npos; at = path.find(kEnd, at + 1)) {
    const std::string wheel = path.substr(0, at + kEnd.size() - 1);
    if (!Files().identify(wheel)) continue;  // a folder of such a name
    std::vector<Reason> ignored;
    if (std::shared_ptr<const Wheel> found = Wheel::read(wheel, &ignored)) return found;
  }
  return std::make_shared<Files>();
}

}  // namespace opdock
