// Finds the native files of a package that its import loads.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>

#include "inspect/targets.h"

namespace opdock {

struct Reach {
  // Paths of members: the extension modules that importing the package's top-level modules imports,
  // and the files that the sources on the way name. If that leads to none, the imports in functions
  // count too. If these lead to none, all extension modules in packages except tests; if there is
  // none of these either, or no source, all members.
  std::set<std::string> files;
  bool is_exact = false;         // the import leads to these files
  bool loads_libraries = false;  // a source on the way opens libraries itself
};

// Reads the package's Python sources as far as the import goes, and runs nothing. What an extension
// module imports in turn is not seen.
Reach find_reach(const PackageTarget& target);

}  // namespace opdock
