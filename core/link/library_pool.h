// Libraries by what they are: each is read once, as long as the file stays the same.
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
  // One for the process.
  static LibraryPool& shared();

  // The file at `path`; NULL if there is none that can be read. A file that is no library of this
  // machine is one too: what is wrong with it stands in its refusal.
  std::shared_ptr<const Library> get(const std::string& path, const Files& files);
  // What somebody has read already.
  void put(const FileIdentity& identity, std::shared_ptr<const Library> library);

 private:
  Mutex mutex_;
  struct Known {
    std::shared_ptr<const Library> kept;      // NULL: the pool has let it go
    std::weak_ptr<const Library> remembered;  // while somebody else has it
  };
  std::map<FileIdentity, Known> libraries_;
  size_t bytes_ = 0;
};

}  // namespace opdock
