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
  bool consent = false;     // somebody asked for this very path: no trust check
  bool must_exist = false;  // its absence is reported
};

// The places of docs/concepts.md in their order. Touches no file but this library's own.
std::vector<Place> search_places(const SearchOptions& options);

// The pieces of a colon-separated list; empty ones are dropped.
std::vector<std::string> split_list(std::string_view list);

// The folder that holds this library (or the program it is linked into), links resolved; empty if
// the loader does not know it.
std::string library_folder();

// True for well-formed UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF.
bool is_utf8(std::string_view text);
// `text` with every byte that is not part of well-formed UTF-8 written as \xNN.
std::string escape_bytes(std::string_view text);

}  // namespace opdock
