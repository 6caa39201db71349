// What a request to look at packages comes to: which files, and whose they are.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "inspect/survey.h"

namespace opdock {

struct PackageFile {
  std::string path;
  std::string name;  // within the package
};

struct PackageTarget {
  SurveyedPackage package;  // without files
  std::shared_ptr<const Files> files;
  std::vector<PackageFile> members;
};

struct Targets {
  std::vector<PackageTarget> list;
  std::vector<Skipped> skipped;
  uint64_t num_pure = 0;
};

// Throws Error as survey() does.
Targets find_targets(const SurveyRequest& request, Progress* progress);

}  // namespace opdock
