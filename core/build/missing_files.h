// What a build missed: headers of other packages, and files of the plugin's own.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace opdock {

std::vector<std::string_view> lines_of(std::string_view text);

// The header of "fatal error: X: No such file", "'X' file not found", 'cannot open source file
// "X"'; empty: the log has none.
std::string missing_header(std::string_view log);
// What to install for a header; empty: not known.
std::string package_of_header(std::string_view header);
// Where packages put headers; a compiler's own folders are not looked into.
bool is_installed_header(std::string_view header);

// A file of the plugin's folder that the error names and that was not copied, as nothing names it
// (build/sources.h); empty: none.
std::string left_out(const std::string& plugin_folder, const std::string& copied_folder,
                     const std::string& error);

}  // namespace opdock
