// Text for people: colours, wrapping and tables on a terminal, plain lines elsewhere.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.h"  // printable(): names and messages come from untrusted files

namespace opdock::cli {

enum class Style { kPlain, kBold, kDim, kGood, kBad, kUnsure };

// Properties of stdout. Colours need a terminal, TERM other than "dumb" and no NO_COLOR; the width
// is 0 if stdout is not a terminal, and lines are then never wrapped.
struct Terminal {
  bool has_colour = false;
  size_t width = 0;
};
const Terminal& terminal();

// Returns `text` in a style; unchanged without colours.
std::string styled(std::string_view text, Style style);

// Returns how many columns a UTF-8 text takes, one for each character.
size_t columns(std::string_view text);

// Returns `text` indented by `indent` and wrapped to the terminal, further lines by two columns
// more.
std::string paragraph(std::string_view text, size_t indent);

// Returns the lines of `text` without wrapping, such as a compiler's message, each printable and
// indented.
std::string lines(std::string_view text, size_t indent);

struct Cell {
  std::string text;
  Style style = Style::kPlain;
};
// Returns rows with aligned columns; the last column is not padded.
std::string table(const std::vector<std::vector<Cell>>& rows);

// Prints "opdock: text" on stderr; further lines of it are indented, so that none looks like
// another error.
void print_error(std::string_view text);

}  // namespace opdock::cli
