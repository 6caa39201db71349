// The Python packages that are installed in a folder, by what installers recorded of them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace opdock {

struct Distribution {
  std::string name, version;  // as its metadata has them
  std::string site;           // the folder it is installed in, absolute
  // Files that may be native code by their names, absolute, from its RECORD.
  std::vector<std::string> files;
  std::vector<std::string> sources;  // Python's, likewise
  // Where nothing is recorded: its top-level folders and modules, absolute.
  std::vector<std::string> tops;
  std::vector<std::string> requirements;  // names, normalised, of what it always requires
};

// "Foo.Bar_baz" is "foo-bar-baz", as PyPI compares names.
std::string normal_name(std::string_view name);

// What the core metadata (METADATA, PKG-INFO) says: name, version and requirements are set.
void read_metadata(std::string_view text, Distribution* distribution);

// Those of one folder, by their *.dist-info and *.egg-info, in the order of their names. Files that
// cannot be read count as missing. Thread-safe.
std::vector<Distribution> read_distributions(const std::string& site);

}  // namespace opdock
