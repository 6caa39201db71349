// Lists the Python packages that are installed in a folder, from what installers recorded about
// them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace opdock {

struct Distribution {
  std::string name, version;  // from its metadata
  std::string site;           // the folder it is installed in, absolute
  // Absolute paths from its RECORD of files that may be native code by their names.
  std::vector<std::string> files;
  std::vector<std::string> sources;  // Python sources, from its RECORD too
  // If nothing is recorded: its top-level folders and modules, absolute.
  std::vector<std::string> tops;
  std::vector<std::string> requirements;  // normalised names of what it always requires
};

// Returns a name in the form in which PyPI compares names: "foo-bar-baz" for "Foo.Bar_baz".
std::string normal_name(std::string_view name);

// Sets name, version and requirements from the core metadata (METADATA, PKG-INFO).
void read_metadata(std::string_view text, Distribution* distribution);

// Returns the packages of one folder, found by their *.dist-info and *.egg-info, in the order of
// their names. Files that cannot be read count as missing. Thread-safe.
std::vector<Distribution> read_distributions(const std::string& site);

}  // namespace opdock
