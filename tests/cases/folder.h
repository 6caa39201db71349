// What tests of discovery and loading share: a folder of plugins, and a host that counts.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "discover/catalog.h"
#include "load/loader.h"

namespace opdock::testing {

// A new folder below the build folder, which other users cannot write; removed at the end.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string path(const std::string& name = "") const;
  // Copies the case plugin `name` to `as` (default: name + ".so") and returns the path.
  std::string add(const std::string& name, std::string as = "") const;
  // The same with rename, so that a file of that name is replaced by a new inode.
  std::string replace(const std::string& name, const std::string& as) const;
  std::string write(const std::string& as, const std::string& text) const;

 private:
  std::filesystem::path root_;
};

// Where the case plugin `name` was built.
std::string case_path(const std::string& name);

// Search options that name `path` as an explicit place, and as one that needs trust. Neither looks
// at the environment.
SearchOptions explicit_place(const std::string& path);
SearchOptions package_place(const std::string& path);

std::shared_ptr<const Catalog> find(const SearchOptions& options);
// The candidate with this path; fails the test and returns NULL if there is none.
std::shared_ptr<const Candidate> at(const Catalog& catalog, const std::string& path);

// "state: code, code": for messages of tests.
std::string describe(const Candidate& candidate);

// A host whose log counts how often each message came.
const opdock_host* counting_host();
int count_of(const std::string& message);

// Discovers `options` and expects the plugin "good" there to be usable and to load.
void expect_good_still_loads(const SearchOptions& options);

}  // namespace opdock::testing
