// Lists the places where plugins are searched, in order.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "discover/catalog.h"

namespace opdock {

struct Place {
  std::string path;    // absolute: a folder, or one file
  std::string origin;  // what named the place: "OPDOCK_PLUGIN_PATH", or the path of a default place
  bool consent = false;     // the user named exactly this path: no trust check
  bool must_exist = false;  // its absence is reported
};

// Returns the places that docs/concepts/concepts.md lists, in its order. Accesses no files but
// those of this library's installation.
std::vector<Place> search_places(const SearchOptions& options);

// Splits a colon-separated list and drops empty entries.
std::vector<std::string> split_list(std::string_view list);

}  // namespace opdock
