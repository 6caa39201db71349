// Where the bytes of files come from: the file system, or a wheel whose members are read as if they
// lay in a folder of its name.
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
  uint64_t part = 0;  // of a wheel: 1 + the member's place in its directory; else 0
  uint64_t size = 0;
  auto operator<=>(const FileIdentity&) const = default;
};

struct OpenFile {
  Fd fd;  // a regular file, read with pread from 0 on
  uint64_t size = 0;
  FileIdentity identity;
};

// The file system. Every member may be called from any thread.
class Files {
 public:
  virtual ~Files() = default;
  // Opens a regular file for reading, links followed; nullopt and, unless it is NULL, one more
  // reason in *reasons if there is none or it cannot be read.
  virtual std::optional<OpenFile> open(const std::string& path, std::vector<Reason>* reasons) const;
  std::optional<OpenFile> open(const std::string& path) const { return open(path, nullptr); }
  // What open() would say of it, without the cost of unpacking; nullopt: there is no regular file.
  virtual std::optional<FileIdentity> identify(const std::string& path) const;
  virtual bool is_folder(const std::string& path) const;
  // "a folder", "a FIFO", …: what is there instead of a regular file; empty: nothing.
  virtual std::string other_kind(const std::string& path) const;
};

// The reason for a failed open or stat of `path`.
Reason open_reason(int error, const std::string& path);

// An absolute path without ".", ".." and double slashes, by its text alone: "/a/b/../c" is "/a/c".
// A relative one is taken from the current folder.
std::string plain_path(const std::string& path);

}  // namespace opdock
