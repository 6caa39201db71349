// Checks the values of options and arguments.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace opdock::cli {

// Each throws Usage about `option` ("--jobs", "PATH") unless `text` is valid. or_else: what holds
// if the option is left out; may be empty.
void check_word(const std::string& option, const std::vector<std::string>& words,
                const std::string& text);
void check_number(const std::string& option, uint64_t least, uint64_t most,
                  const std::string& or_else, const std::string& text);
void check_seconds(const std::string& option, const std::string& or_else, const std::string& text);
// wanted: what should be there, such as "a shared object".
void check_exists(const std::string& option, const std::string& wanted, const std::string& path);
// Returns whether it may be a plugin's name: it has no slash, and nothing of that name is here.
bool may_be_name(const std::string& text);
// Accepts a file, or a folder with a plugin.toml.
void check_source_plugin(const std::string& option, const std::string& path);
void check_paths(const std::string& option, const std::string& paths);  // separated by colons
void check_can_be_made(const std::string& option, const std::string& path);
// Refuses a path at which a file lies that is not a page of `inspect --html`.
void check_page(const std::string& option, const std::string& path);
void check_op_name(const std::string& text);  // refuses an argument of the op in its place

}  // namespace opdock::cli
