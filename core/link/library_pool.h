// Caches libraries by file identity: each is read once, as long as its file does not change.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "link/files.h"
#include "note/elf_library.h"

namespace opdock {

// Thread-safe.
class LibraryPool {
 public:
  // Returns the pool of this process.
  static LibraryPool& shared();

  // Returns the library at `path`, or NULL if there is no file that can be read. A file that is not
  // a library of this machine is returned too: its `refusal` says what is wrong.
  std::shared_ptr<const Library> get(const std::string& path, const Files& files);
  // Adds a library that somebody has already read.
  void put(const FileIdentity& identity, std::shared_ptr<const Library> library);

 private:
  Mutex mutex_;
  struct Known {
    std::shared_ptr<const Library> kept;      // NULL: the pool has dropped it
    std::weak_ptr<const Library> remembered;  // valid while somebody else uses the library
  };
  std::map<FileIdentity, Known> libraries_;
  size_t bytes_ = 0;
};

}  // namespace opdock
