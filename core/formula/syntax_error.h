// Makes the texts of errors: the place, the source line with a mark, and names, all safe to show.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace opdock::formula {

// Throws SyntaxError: "line 2, column 5: " and `text`, then the line and a mark below the byte
// `place` of the source. Columns count characters; a tab is one. Characters that are not printable
// ASCII are shown as escape sequences, and long lines are cut on both sides.
[[noreturn]] void fail(std::string_view source, size_t place, const std::string& text);

// Returns the text in double quotes, escaped as above, and cut if it is long.
std::string quoted(std::string_view text);

// Reads the character at byte `at`. Returns how many bytes it has, and its number in *code; for a
// byte that does not begin well-formed UTF-8, 1 and -1.
size_t decode(std::string_view text, size_t at, int32_t* code);

// Returns the known names that are similar to `name`, at most three and the nearest first, as a
// question: "; did you mean exp or exp2?". Returns "" if there is none.
std::string did_you_mean(std::string_view name, const std::vector<std::string_view>& known);

}  // namespace opdock::formula
