// Where plugins are searched, in order.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "discover/catalog.h"

namespace opdock {

struct Place {
  std::string path;         // absolute: a folder, or one file
  std::string origin;       // what named it: "OPDOCK_PLUGIN_PATH", or the path of a default place
  bool consent = false;     // the user named this very path: no trust check
  bool must_exist = false;  // its absence is reported
};

// The places of docs/concepts.md in their order. Touches no file but this library's own.
std::vector<Place> search_places(const SearchOptions& options);

// The pieces of a colon-separated list; empty ones are dropped.
std::vector<std::string> split_list(std::string_view list);

}  // namespace opdock
