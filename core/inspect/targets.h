// Resolves a request to inspect packages: to which files it comes, and which packages have them.
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
  std::string site;  // the folder of packages that it is in; for a wheel, the wheel's path
  std::vector<PackageFile> members;
  std::vector<PackageFile> sources;  // Python sources, of wheels and installed packages
};

struct Targets {
  std::vector<PackageTarget> list;
  // Libraries of other packages that are loaded before the listed ones: of SurveyRequest::with, and
  // of what a named package requires.
  std::vector<std::string> before;
  std::vector<Skipped> skipped;
  std::string python;  // the interpreter that was asked where its packages are; empty: none was
  uint64_t num_pure = 0;
};

// Throws Error as survey() does.
Targets find_targets(const SurveyRequest& request, Progress* progress);

}  // namespace opdock
