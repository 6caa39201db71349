// Examines one file that may be a plugin, and lists the files of one folder.
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

// Returns a path to the file that `fd` has open, which is valid while this process has it open; ""
// where /proc is not mounted.
std::string descriptor_path(int fd);

// The location of a file: `name` relative to the open folder `folder_fd`, or AT_FDCWD and a path.
struct FileSite {
  int folder_fd;
  std::string name;
};

// Opens, reads and judges one file. `trust` is NULL for an explicit path; otherwise `trusted` is
// its result for the file's folder. Every problem becomes a reason in the verdict. Thread-safe.
Candidate look_at(const FileSite& site, std::string path, std::string origin, Trust* trust,
                  const TrustedPath& trusted, const MachineFacts& machine, Linker* linker,
                  Depth depth);

// Returns a candidate that is rejected before any of its contents are read.
Candidate rejected(std::string path, std::string origin, Reason reason);

// Returns the names in an open folder that end in ".so". *folders receives the names of the
// subfolders that have a plugin.toml. Both are in bytewise order. *problem: an errno if the listing
// failed or was incomplete, else 0.
std::vector<FileSite> list_folder(int folder_fd, std::vector<std::string>* folders, int* problem);

}  // namespace opdock
