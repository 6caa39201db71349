// Exports and imports entries as one tar file, which any tar reads, for another machine.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <set>

#include "cache/manage.h"
#include "cache/store.h"
#include "cache/tar.h"
#include "fmt/format.h"

namespace opdock::cache {
namespace {

// An archive that is being read, into a folder laid out like a cache's root.
struct Reading {
  int fd;
  uint64_t left;  // unread bytes of the archive
  std::string staging;
  std::set<std::string> variants;  // "v1/kernels/ab/KEY/MAKER"
  std::string problem;             // the problem that was found, if it is not an archive of entries
  int error = 0;                   // errno of reading or writing
};

bool take(Reading* reading, char* out, size_t size) {
  if (size > reading->left) {
    reading->problem = "an end in the middle";
    return false;
  }
  for (size_t at = 0; at < size;) {
    const ssize_t got = read(reading->fd, out + at, size - at);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      reading->error = got < 0 ? errno : EIO;
      return false;
    }
    at += static_cast<size_t>(got);
  }
  reading->left -= size;
  return true;
}

// Returns the leading "v1/<kind>/<2 hex>/<key>/<maker>" of a name that has nothing after it or a
// name that stays inside; nullopt for any other name.
std::optional<std::string> variant_of(const std::string& name) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (parts.size() < 5) {
    const size_t slash = name.find('/', begin);
    parts.push_back(name.substr(begin, slash - begin));
    begin = slash == std::string::npos ? name.size() : slash + 1;
    if (slash == std::string::npos) break;
  }
  if (parts.size() != 5 || parts[0] != "v1" || !is_key(parts[3]) ||
      parts[2] != parts[3].substr(0, 2) || !is_hex(parts[4], 8, 64)) {
    return {};
  }
  const bool is_known = std::any_of(std::begin(kKinds), std::end(kKinds),
                                    [&](const char* kind) { return parts[1] == kind; });
  if (!is_known || name.back() == '/') return {};
  if (begin < name.size() && !is_inner_name(std::string_view(name).substr(begin))) return {};
  return fmt::format("v1/{}/{}/{}/{}", parts[1], parts[2], parts[3], parts[4]);
}

bool extract(Reading* reading, TarHead head, const TarFile& inner) {
  const std::string& name = inner.name;
  const std::optional<std::string> variant = variant_of(name);
  if (!variant) {
    reading->problem = fmt::format("\"{}\" in it", name);
    return false;
  }
  if (head != TarHead::kFile) {
    reading->problem = fmt::format("\"{}\", which is no plain file", name);
    return false;
  }
  reading->variants.insert(*variant);
  const std::string path = reading->staging + "/" + name;
  Fd file;
  reading->error = make_folders(parent_of(path));
  if (reading->error == 0) {
    reading->error =
        open_file(path, O_WRONLY | O_CREAT | O_EXCL, inner.is_executable ? 0755 : 0644, &file);
  }
  if (reading->error == EEXIST || reading->error == ENOTDIR) {
    reading->error = 0;
    reading->problem = fmt::format("\"{}\" twice", name);
  }
  if (reading->error != 0 || !reading->problem.empty()) return false;
  std::vector<char> buffer(256 << 10);
  for (uint64_t left = inner.size; left > 0;) {
    const size_t piece = static_cast<size_t>(std::min<uint64_t>(left, buffer.size()));
    if (!take(reading, buffer.data(), piece)) return false;
    reading->error = write_all(file.get(), {buffer.data(), piece});
    if (reading->error != 0) return false;
    left -= piece;
  }
  reading->error = sync_file(file.get());
  return reading->error == 0 && take(reading, buffer.data(), tar_padding(inner.size));
}

bool extract_all(Reading* reading) {
  while (true) {
    TarBlock block;
    TarFile inner;
    if (!take(reading, block.data(), block.size())) return false;
    const TarHead head = read_tar_head(block, &inner);
    if (head == TarHead::kEnd) return true;
    if (head == TarHead::kNoHead) {
      reading->problem = "bytes that are no tar file's";
      return false;
    }
    if (!extract(reading, head, inner)) return false;
  }
}

// Moves the extracted and checked variants into their places.
bool place_all(const Layout& layout, const Reading& reading, Imported* result,
               std::vector<Reason>* reasons) {
  for (const std::string& variant : reading.variants) {
    const std::string from = reading.staging + "/" + variant, to = layout.root + "/" + variant;
    const OpenedEntry mine = open_entry(from, false);
    int error = make_folders(parent_of(to));
    if (error == 0) error = rename_new(from, to);
    if (error == EEXIST) {
      // A damaged entry is replaced.
      const OpenedEntry there = open_entry(to);
      if (there.state != OpenedEntry::kDamaged) {
        ++result->present;
        continue;
      }
      quarantine(layout, to, there, there.problem);
      error = rename_new(from, to);
    }
    if (error == 0) error = sync_folder(parent_of(to));
    if (error != 0) {
      add_reason(reasons, Code::kCacheWrite, to + ": " + error_text(error),
                 "a cache that can be written");
      return false;
    }
    if (mine.entry != nullptr) record_history(layout, mine.entry->data());
    ++result->entries;
  }
  return true;
}

}  // namespace

bool export_entries(const Layout& layout, const std::string& file, Exported* result,
                    std::vector<Reason>* reasons) {
  const std::string temp = file + "." + unique_name();
  Fd out;
  int error = open_file(temp, O_WRONLY | O_CREAT | O_EXCL, 0600, &out);
  const auto append = [&](const Variant& variant, const OpenedEntry& opened) {
    if (opened.entry == nullptr) {
      result->left_out.push_back(variant.path + ": " + opened.problem);
      return true;
    }
    const StoredEntry& entry = *opened.entry;
    const auto inside = [&](const std::string& path) {
      return path.substr(layout.root.size() + 1);
    };
    error = append_to_tar(out.get(), entry.path(), inside(entry.path()), &result->bytes);
    for (const EntryFile& one : entry.data().files) {
      const std::string path = entry.folder() + "/" + one.name;
      if (error == 0) error = append_to_tar(out.get(), path, inside(path), &result->bytes);
    }
    if (error == 0) ++result->entries;
    return error == 0;
  };
  if (error == 0) for_each_entry(layout, true, append);
  if (error == 0) error = write_all(out.get(), tar_end());
  if (error == 0) error = sync_file(out.get());
  if (error == 0 && rename(temp.c_str(), file.c_str()) != 0) error = errno;
  result->bytes += tar_end().size();
  if (error == 0) return true;
  unlink(temp.c_str());
  add_reason(reasons, Code::kCacheWrite, file + ": " + error_text(error),
             "a file that can be written");
  return false;
}

bool import_entries(const Layout& layout, const std::string& file, bool trust, Imported* result,
                    std::vector<Reason>* reasons) {
  Fd in;
  struct stat status{};
  int error = open_file(file, O_RDONLY, 0, &in);
  if (error == 0 && fstat(in.get(), &status) != 0) error = errno;
  if (error == 0 && !S_ISREG(status.st_mode)) error = EISDIR;
  if (error != 0) {
    add_reason(reasons, Code::kCacheArchive, file + ": " + error_text(error), "a file");
    return false;
  }
  const std::string staging = layout.temp() + "/" + unique_name();
  LockFile lock;
  error = make_folders(layout.temp());
  if (error == 0) error = lock.open(staging + ".lock");
  if (error == 0) lock.try_lock();
  Reading reading{in.get(), static_cast<uint64_t>(status.st_size), staging, {}, {}, error};
  bool is_good = error == 0 && extract_all(&reading);
  for (const std::string& variant : reading.variants) {
    if (!is_good) break;
    const OpenedEntry opened = open_entry(staging + "/" + variant);
    if (opened.state == OpenedEntry::kGood) continue;
    is_good = false;
    if (opened.state == OpenedEntry::kNewer) {
      add_reason(reasons, Code::kCacheNewer, file + " with entries in " + opened.problem,
                 fmt::format("format {}", kEntryFormat));
    } else {
      reading.problem = fmt::format("\"{}\" with {}", variant, opened.problem);
    }
  }
  if (!reading.problem.empty()) {
    add_reason(reasons, Code::kCacheArchive, file + " with " + reading.problem,
               "a file that `opdock cache export` wrote");
  } else if (reading.error != 0) {
    add_reason(reasons, Code::kCacheWrite, staging + ": " + error_text(reading.error),
               "a cache that can be written");
  }
  const auto with_code =
      std::count_if(reading.variants.begin(), reading.variants.end(),
                    [](const std::string& variant) { return !variant.starts_with("v1/tuning/"); });
  if (is_good && with_code != 0 && !trust) {
    is_good = false;
    add_reason(reasons, Code::kCacheUntrusted,
               fmt::format("{} with the code of {} entries", file, with_code),
               "a file without code, or word that its maker is trusted");
  }
  if (is_good) is_good = place_all(layout, reading, result, reasons);
  remove_tree(staging);
  unlink((staging + ".lock").c_str());
  return is_good;
}

}  // namespace opdock::cache
