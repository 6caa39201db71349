// Reads files from the file system, or from a wheel whose members appear as files in a folder with
// the wheel's name.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/reason.h"

namespace opdock {

// Two files with the same identity have the same bytes, whatever their paths.
struct FileIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;
  int64_t mtime_ns = 0;
  uint64_t part = 0;  // for a wheel's member 1 + its index in the wheel's directory; otherwise 0
  uint64_t size = 0;
  auto operator<=>(const FileIdentity&) const = default;
};

struct OpenFile {
  Fd fd;  // a regular file, read with pread from offset 0
  uint64_t size = 0;
  FileIdentity identity;
};

// The file system. Any thread may call any member.
class Files {
 public:
  virtual ~Files() = default;
  // Opens a regular file for reading, following links. If there is none or it cannot be read,
  // returns nullopt and, unless reasons is NULL, appends a reason to *reasons.
  virtual std::optional<OpenFile> open(const std::string& path, std::vector<Reason>* reasons) const;
  std::optional<OpenFile> open(const std::string& path) const { return open(path, nullptr); }
  // Returns the identity that open() would give, without the cost of unpacking; nullopt: there is
  // no regular file.
  virtual std::optional<FileIdentity> identify(const std::string& path) const;
  virtual bool is_folder(const std::string& path) const;
  // Returns what is at the path instead of a regular file, "a folder", "a FIFO", …; empty: nothing.
  virtual std::string other_kind(const std::string& path) const;
};

// Returns the reason for a failed open or stat of `path`.
Reason open_reason(int error, const std::string& path);

// Returns an absolute path without ".", ".." and double slashes, changing only the text:
// "/a/b/../c" becomes "/a/c". A relative path is taken from the current folder.
std::string plain_path(const std::string& path);

}  // namespace opdock
