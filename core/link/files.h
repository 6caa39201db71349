// Where the bytes of libraries come from: the file system, or what stands in for it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/fd.h"

namespace opdock {

// Tells a file's content from another's without reading it.
struct FileIdentity {
  uint64_t device = 0, inode = 0, part = 0;  // part: of what the file contains; 0: it itself
  uint64_t size = 0;
  int64_t mtime_ns = 0;
  auto operator<=>(const FileIdentity&) const = default;
};

struct OpenFile {
  Fd fd;
  FileIdentity identity;  // its size is that of what fd reads
};

// Thread-safe. This one is the real file system.
class Files {
 public:
  virtual ~Files() = default;
  // Regular files only, symbolic links followed; nullopt: there is none that can be read.
  virtual std::optional<FileIdentity> identify(const std::string& path) const;
  virtual std::optional<OpenFile> open(const std::string& path) const;
  virtual bool is_folder(const std::string& path) const;
};

}  // namespace opdock
