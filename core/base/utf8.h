// Texts from outside: file names, environment.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace opdock {

// True for well-formed UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF.
bool is_utf8(std::string_view text);
// `text` with every byte that is not part of well-formed UTF-8 written as \xNN.
std::string escape_bytes(std::string_view text);
// The text as a terminal or a page may show it: besides, characters that move the cursor, change
// colours or the order of what is shown, or cannot be seen, are written as \xNN, \uNNNN or
// \UNNNNNNNN too. What lies in a file could otherwise turn a line with a verdict around
// (CVE-2021-42574).
std::string printable(std::string_view text);

}  // namespace opdock
