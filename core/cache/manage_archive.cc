// Entries in one file, for another machine: a tar file in the plain ustar format, which any tar
// reads. Written and read here, as a handful of lines does and nothing but plain files is in it.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <set>

#include "cache/manage.h"
#include "cache/store.h"
#include "fmt/format.h"

namespace opdock::cache {
namespace {

constexpr size_t kBlock = 512;

struct Header {
  char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, link[100];
  char magic[6], version[2], user[32], group[32], major[8], minor[8], prefix[155], pad[12];
};
static_assert(sizeof(Header) == kBlock);

unsigned checksum(Header header) {
  std::memset(header.checksum, ' ', sizeof header.checksum);
  unsigned sum = 0;
  std::array<uint8_t, kBlock> bytes{};
  std::memcpy(bytes.data(), &header, kBlock);
  for (const uint8_t byte : bytes) sum += byte;
  return sum;
}

void put(char* field, size_t size, std::string_view text) {
  std::memcpy(field, text.data(), std::min(size, text.size()));
}

// The name goes into two fields, split at a slash. False if it does not fit.
bool make_header(const std::string& name, uint64_t size, bool is_executable, Header* header) {
  *header = {};
  size_t split = 0;
  if (name.size() > sizeof header->name) {
    split = name.find('/', name.size() - sizeof header->name - 1);
    if (split == std::string::npos || split > sizeof header->prefix) return false;
    put(header->prefix, sizeof header->prefix, name.substr(0, split));
    ++split;
  }
  if (size >= uint64_t{1} << 33) return false;
  put(header->name, sizeof header->name, name.substr(split));
  put(header->mode, 8, is_executable ? "0000700" : "0000600");
  put(header->uid, 8, "0000000");
  put(header->gid, 8, "0000000");
  put(header->size, 12, fmt::format("{:011o}", size));
  put(header->mtime, 12, "00000000000");
  header->type = '0';
  std::memcpy(header->magic,
              "ustar\0"
              "00",
              8);
  put(header->checksum, 8, fmt::format("{:06o}", checksum(*header)));
  return true;
}

std::string_view field_text(const char* field, size_t size) {
  return {field, strnlen(field, size)};
}

bool read_octal(const char* field, size_t size, uint64_t* value) {
  *value = 0;
  for (const char c : field_text(field, size)) {
    if (c == ' ') continue;
    if (c < '0' || c > '7') return false;
    *value = *value * 8 + static_cast<uint64_t>(c - '0');
  }
  return true;
}

int append_file(int out, const std::string& path, const std::string& name, uint64_t* total) {
  Fd file;
  if (const int error = open_file(path, O_RDONLY, 0, &file)) return error;
  struct stat status{};
  if (fstat(file.get(), &status) != 0) return errno;
  const uint64_t size = static_cast<uint64_t>(status.st_size);
  Header header;
  if (!make_header(name, size, (status.st_mode & S_IXUSR) != 0, &header)) return ENAMETOOLONG;
  if (const int error = write_all(out, {reinterpret_cast<const char*>(&header), kBlock})) {
    return error;
  }
  std::vector<char> buffer(256 << 10);
  uint64_t left = size;
  while (left > 0) {
    const ssize_t got = read(file.get(), buffer.data(), std::min<uint64_t>(left, buffer.size()));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got < 0 ? errno : EIO;
    if (const int error = write_all(out, {buffer.data(), static_cast<size_t>(got)})) return error;
    left -= static_cast<uint64_t>(got);
  }
  const std::string padding((kBlock - size % kBlock) % kBlock, '\0');
  *total += kBlock + size + padding.size();
  return write_all(out, padding);
}

// An archive being read, into a folder that looks like a cache's root.
struct Reading {
  int fd;
  uint64_t left;  // bytes of the archive
  std::string staging;
  std::set<std::string> variants;  // "v1/kernels/ab/KEY/MAKER"
  std::string problem;             // what was found, if it is not an archive of entries
  int error = 0;                   // of reading or writing
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

// "v1/<kind>/<2 hex>/<key>/<maker>", and behind it nothing or a name that stays inside.
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

bool extract(Reading* reading, const std::string& name, const Header& header) {
  const std::optional<std::string> variant = variant_of(name);
  uint64_t size = 0, mode = 0;
  if (!variant) {
    reading->problem = fmt::format("\"{}\" in it", name);
    return false;
  }
  if ((header.type != '0' && header.type != '\0') || !read_octal(header.size, 12, &size) ||
      !read_octal(header.mode, 8, &mode)) {
    reading->problem = fmt::format("\"{}\", which is no plain file", name);
    return false;
  }
  reading->variants.insert(*variant);
  const std::string path = reading->staging + "/" + name;
  Fd file;
  reading->error = make_folders(parent_of(path));
  if (reading->error == 0) {
    reading->error =
        open_file(path, O_WRONLY | O_CREAT | O_EXCL, (mode & 0100) != 0 ? 0700 : 0600, &file);
  }
  if (reading->error == EEXIST || reading->error == ENOTDIR) {
    reading->error = 0;
    reading->problem = fmt::format("\"{}\" twice", name);
  }
  if (reading->error != 0 || !reading->problem.empty()) return false;
  std::vector<char> buffer(256 << 10);
  for (uint64_t left = size; left > 0;) {
    const size_t piece = static_cast<size_t>(std::min<uint64_t>(left, buffer.size()));
    if (!take(reading, buffer.data(), piece)) return false;
    reading->error = write_all(file.get(), {buffer.data(), piece});
    if (reading->error != 0) return false;
    left -= piece;
  }
  reading->error = sync_file(file.get());
  return reading->error == 0 && take(reading, buffer.data(), (kBlock - size % kBlock) % kBlock);
}

bool extract_all(Reading* reading) {
  while (true) {
    Header header;
    if (!take(reading, reinterpret_cast<char*>(&header), kBlock)) return false;
    if (header.name[0] == '\0') return true;  // the block of zeros at the end
    uint64_t sum = 0;
    if (std::memcmp(header.magic, "ustar", 5) != 0 || !read_octal(header.checksum, 8, &sum) ||
        sum != checksum(header)) {
      reading->problem = "bytes that are no tar file's";
      return false;
    }
    std::string name(field_text(header.prefix, sizeof header.prefix));
    if (!name.empty()) name += '/';
    name += field_text(header.name, sizeof header.name);
    if (!extract(reading, name, header)) return false;
  }
}

// Moves what was extracted and checked into its place.
bool place_all(const Layout& layout, const Reading& reading, Imported* result,
               std::vector<Reason>* reasons) {
  for (const std::string& variant : reading.variants) {
    const std::string from = reading.staging + "/" + variant, to = layout.root + "/" + variant;
    const OpenedEntry mine = open_entry(from, false);
    int error = make_folders(parent_of(to));
    if (error == 0) error = rename_new(from, to);
    if (error == EEXIST) {
      // One that is damaged gives way.
      const OpenedEntry there = open_entry(to);
      if (there.state != OpenedEntry::kDamaged) {
        ++result->present;
        continue;
      }
      move_aside(layout, to, there, there.problem);
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
    error = append_file(out.get(), entry.path(), inside(entry.path()), &result->bytes);
    for (const EntryFile& one : entry.data().files) {
      const std::string path = entry.folder() + "/" + one.name;
      if (error == 0) error = append_file(out.get(), path, inside(path), &result->bytes);
    }
    if (error == 0) ++result->entries;
    return error == 0;
  };
  if (error == 0) for_each_entry(layout, true, append);
  if (error == 0) error = write_all(out.get(), std::string(2 * kBlock, '\0'));
  if (error == 0) error = sync_file(out.get());
  if (error == 0 && rename(temp.c_str(), file.c_str()) != 0) error = errno;
  result->bytes += 2 * kBlock;
  if (error == 0) return true;
  unlink(temp.c_str());
  add_reason(reasons, Code::kCacheWrite, file + ": " + error_text(error),
             "a file that can be written");
  return false;
}

bool import_entries(const Layout& layout, const std::string& file, Imported* result,
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
  if (is_good) is_good = place_all(layout, reading, result, reasons);
  remove_tree(staging);
  unlink((staging + ".lock").c_str());
  return is_good;
}

}  // namespace opdock::cache
