// Splits a formula's text into tokens.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace opdock::formula {

inline constexpr size_t kMaxName = 64;  // letters of a name; exceeding it throws SyntaxError

struct Token {
  enum class Kind : uint8_t {
    kName,  // also words such as "if"
    kInteger,
    kReal,
    kString,  // `text` is what stands between the quotes
    kSymbol,  // an operator, a parenthesis, a comma, …
    kBreak,   // the end of a statement: of a line that is not within parentheses, or ";"
    kEnd,     // the end of the text
  };
  Kind kind = Kind::kEnd;
  uint32_t place = 0;  // the byte at which it begins
  std::string_view text;
  int64_t integer = 0;
  double real = 0;

  bool is(std::string_view symbol) const { return kind == Kind::kSymbol && text == symbol; }
  bool is_word(std::string_view word) const { return kind == Kind::kName && text == word; }
};

// Returns whether the text is a name: ASCII letters, digits and "_", not beginning with a digit.
bool is_name(std::string_view text);

// Returns the tokens of the source, the last of which is a kEnd. Their texts are parts of the
// source. Comments and empty lines leave none. Throws SyntaxError.
std::vector<Token> read_tokens(std::string_view source);

}  // namespace opdock::formula
