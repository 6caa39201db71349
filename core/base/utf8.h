// Makes texts from outside, such as file names and environment variables, safe to show.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace opdock {

// True for well-formed UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF.
bool is_utf8(std::string_view text);
// Returns `text` with every byte that is not part of well-formed UTF-8 written as \xNN.
std::string escape_bytes(std::string_view text);
// Returns `text` as a terminal or a page may show it. In addition to invalid bytes, it escapes
// characters that are invisible, move the cursor, or change colours or the order of the text, as
// \xNN, \uNNNN or \UNNNNNNNN. Otherwise text in a file could reverse a line that shows a verdict
// (CVE-2021-42574).
std::string printable(std::string_view text);

}  // namespace opdock
