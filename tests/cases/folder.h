// Shared helpers for tests of discovery and loading: a folder of plugins and a host that counts log
// messages.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "discover/catalog.h"
#include "load/loader.h"

namespace opdock::testing {

// A new folder in the build folder, which other users cannot write; removed when the object dies.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string path(const std::string& name = "") const;
  // Copies the case plugin `name` to `as` (default: name + ".so") and returns the path.
  std::string add(const std::string& name, std::string as = "") const;
  // Like add(), but renames the copy over `as`, so that the file is replaced by a new inode.
  std::string replace(const std::string& name, const std::string& as) const;
  std::string write(const std::string& as, const std::string& text) const;

 private:
  std::filesystem::path root_;
};

// Returns the path at which the case plugin `name` was built.
std::string case_path(const std::string& name);

// Search options with `path` as an explicit place, and as a place that needs trust. Neither reads
// the environment.
SearchOptions explicit_place(const std::string& path);
SearchOptions package_place(const std::string& path);

std::shared_ptr<const Catalog> find(const SearchOptions& options);
// Returns the candidate with this path; fails the test and returns NULL if there is none.
std::shared_ptr<const Candidate> at(const Catalog& catalog, const std::string& path);

// Returns "path state:" and a line for each reason, for failure messages.
std::string describe(const Candidate& candidate);

// Returns a host whose log function counts how often each message came.
const opdock_host* counting_host();
int count_of(const std::string& message);

// Discovers `options` and expects the plugin "good" there to be usable and to load.
void expect_good_still_loads(const SearchOptions& options);

}  // namespace opdock::testing
