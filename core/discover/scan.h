// Looking at one file that may be a plugin, and listing the files of one folder.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <string>
#include <vector>

#include "discover/catalog.h"
#include "link/linker.h"
#include "trust/trust.h"

namespace opdock {

FileStamp stamp_of(const struct stat& status);

// Leads to the very file that `fd` is open on, in this process and for as long as it is; empty
// where /proc is not mounted.
std::string descriptor_path(int fd);

// Where to find a file: `name` relative to the open folder `folder_fd`, or AT_FDCWD and a path.
struct FileSite {
  int folder_fd;
  std::string name;
};

// Opens, reads and judges one file. `trust` is NULL for an explicit path; else `trusted` is its
// answer for the file's folder. Every problem is a reason in the verdict. Thread-safe.
Candidate look_at(const FileSite& site, std::string path, std::string origin, Trust* trust,
                  const TrustedPath& trusted, const MachineFacts& machine, Linker* linker,
                  Depth depth);

// A candidate that is rejected before anything of it is read.
Candidate rejected(std::string path, std::string origin, Reason reason);

// The names in an open folder that end in ".so", and, in `folders`, those of the folders in it that
// have a plugin.toml; both in bytewise order. `problem` is set to an errno if the listing broke
// off.
std::vector<FileSite> list_folder(int folder_fd, std::vector<std::string>* folders, int* problem);

}  // namespace opdock
