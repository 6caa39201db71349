// Finds what a build lacked: headers of other packages, and files of the plugin itself.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace opdock {

std::vector<std::string_view> lines_of(std::string_view text);

// Returns the header X that the log reports by "fatal error: X: No such file", "'X' file not found"
// or 'cannot open source file "X"'; empty if it reports none.
std::string missing_header(std::string_view log);
// Returns what to install for a header; empty if unknown.
std::string package_of_header(std::string_view header);
// Returns whether the header is in a folder where packages put headers; a compiler's own folders
// are not searched.
bool is_installed_header(std::string_view header);

// Returns a file of the plugin's folder that the error mentions and that was not copied because no
// rule or source names it (build/sources.h); empty if there is none.
std::string left_out(const std::string& plugin_folder, const std::string& copied_folder,
                     const std::string& error);

}  // namespace opdock
