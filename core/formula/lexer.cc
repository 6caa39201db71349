// SPDX-License-Identifier: Apache-2.0
#include "formula/lexer.h"

#include <charconv>
#include <cstdio>
#include <string>

#include "formula/formula.h"
#include "formula/syntax_error.h"

namespace opdock::formula {
namespace {

// Longer symbols come first, because the first that fits is taken.
constexpr std::string_view kSymbolTexts[] = {
    "**", "//", "<<", ">>", "==", "!=", "<=", ">=", "+", "-", "*", "/",
    "%",  "~",  "&",  "|",  "^",  "<",  ">",  "=",  "(", ")", ",", "."};

// Symbols of other languages, and their meanings here. They are looked for before kSymbolTexts.
struct Advice {
  std::string_view found, advice;
};
constexpr Advice kForeign[] = {
    {"**=", "write x = x ** y"},
    {"//=", "write x = x // y"},
    {"<<=", "write x = x << y"},
    {">>=", "write x = x >> y"},
    {"+=", "write x = x + y"},
    {"-=", "write x = x - y"},
    {"*=", "write x = x * y"},
    {"/=", "write x = x / y"},
    {"%=", "write x = x % y"},
    {"&=", "write x = x & y"},
    {"|=", "write x = x | y"},
    {"^=", "write x = x ^ y"},
    {"&&", "write & between tensors, and \"and\" between choices"},
    {"||", "write | between tensors, and \"or\" between choices"},
    {"<>", "write !="},
    {"@", "a formula has no product of matrices"},
    {"?", "write a if choice else b, or where(c, a, b)"},
    {":", "a statement is name = expression or return expression"},
    {"!", "write ~ for a tensor, and \"not\" for a choice"},
    {"[", "a formula sees one element of each tensor and cannot index"},
    {"]", "a formula sees one element of each tensor and cannot index"},
    {"\\", "a line goes on in the next one within parentheses"},
};

struct Lookalike {
  int32_t code;
  std::string_view ascii;
};
constexpr Lookalike kLookalikes[] = {
    {0xa0, "a space"},  {0xb2, "\"** 2\""},   {0xb3, "\"** 3\""}, {0xb7, "\"*\""},
    {0xd7, "\"*\""},    {0xf7, "\"/\""},      {0x3c0, "\"pi\""},  {0x2013, "\"-\""},
    {0x2018, "\"'\""},  {0x2019, "\"'\""},    {0x201c, "'\"'"},   {0x201d, "'\"'"},
    {0x2212, "\"-\""},  {0x221a, "\"sqrt\""}, {0x2260, "\"!=\""}, {0x2264, "\"<=\""},
    {0x2265, "\">=\""},
};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}
  std::vector<Token> read();

 private:
  char at(size_t i) const { return i < source_.size() ? source_[i] : '\0'; }
  std::string_view part(size_t begin) const { return source_.substr(begin, at_ - begin); }
  void add(Token::Kind kind, size_t begin, size_t end);
  void add_break(size_t begin);
  void read_name();
  void read_number();
  void read_integer(size_t begin, std::string_view digits, int base);
  void read_string();
  void read_symbol();
  [[noreturn]] void refuse_character();

  std::string_view source_;
  size_t at_ = 0;
  int open_ = 0;  // parentheses
  std::vector<Token> tokens_;
};

void Lexer::add(Token::Kind kind, size_t begin, size_t end) {
  Token token;
  token.kind = kind;
  token.place = static_cast<uint32_t>(begin);
  token.text = source_.substr(begin, end - begin);
  tokens_.push_back(token);
}

void Lexer::add_break(size_t begin) {
  if (!tokens_.empty() && tokens_.back().kind != Token::Kind::kBreak)
    add(Token::Kind::kBreak, begin, begin + 1);
}

void Lexer::read_name() {
  const size_t begin = at_;
  while (is_letter(at(at_)) || is_digit(at(at_))) ++at_;
  if (at_ - begin > kMaxName)
    fail(source_, begin,
         "found a name of " + std::to_string(at_ - begin) + " letters, " + quoted(part(begin)) +
             ", wanted at most " + std::to_string(kMaxName));
  add(Token::Kind::kName, begin, at_);
}

void Lexer::read_integer(size_t begin, std::string_view digits, int base) {
  int64_t value = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value, base);
  if (error == std::errc::result_out_of_range)
    fail(source_, begin,
         "found the integer " + quoted(part(begin)) +
             ", wanted at most 9223372036854775807; write it as a float");
  if (error != std::errc() || stop != end)
    fail(source_, begin,
         "found " + quoted(part(begin)) + ", wanted a number such as 1, 0x1f, 1.5 or 1e-5");
  add(Token::Kind::kInteger, begin, at_);
  tokens_.back().integer = value;
}

void Lexer::read_number() {
  const size_t begin = at_;
  const bool has_base = at(at_) == '0' && is_letter(at(at_ + 1)) && at(at_ + 1) != '_' &&
                        at(at_ + 1) != 'e' && at(at_ + 1) != 'E';
  bool is_real = false;
  // Everything that could belong to the number is taken first, and judged afterwards.
  while (is_digit(at(at_)) || is_letter(at(at_)) || (at(at_) == '.' && !has_base)) {
    const bool is_exponent = !has_base && (at(at_) == 'e' || at(at_) == 'E');
    if (at(at_) == '.') {
      // 1.exp() is not a method's call, as in Python, but 1.0.exp() is.
      if (is_real) break;
      is_real = true;
    }
    if (is_exponent) is_real = true;
    ++at_;
    if (is_exponent && (at(at_) == '+' || at(at_) == '-')) ++at_;
  }
  const std::string_view text = part(begin);
  std::string digits;
  bool is_fine = true;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto is_hex_digit = [&](size_t j) {
      return j < text.size() &&
             (is_digit(text[j]) || (has_base && is_letter(text[j]) && text[j] != '_'));
    };
    if (text[i] != '_') {
      digits += text[i];
    } else {
      is_fine = is_fine && i > 0 && is_hex_digit(i - 1) && is_hex_digit(i + 1);
    }
  }
  const auto refuse = [&] {
    fail(source_, begin,
         "found " + quoted(text) + ", wanted a number such as 1, 0x1f, 1.5 or 1e-5");
  };
  if (!is_fine) refuse();
  if (has_base) {
    const char letter = static_cast<char>(digits[1] | 0x20);
    const int base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    if (base == 0) refuse();
    return read_integer(begin, std::string_view(digits).substr(2), base);
  }
  if (!is_real) {
    const bool has_zeros = digits[0] == '0' && digits.find_first_not_of('0') != std::string::npos;
    if (has_zeros && digits.find_first_not_of("0123456789") == std::string::npos)
      fail(source_, begin,
           "found " + quoted(text) +
               ", wanted an integer without zeros before it; an octal one begins "
               "with 0o");
    return read_integer(begin, digits, 10);
  }
  double value = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value);
  if (error == std::errc::result_out_of_range)
    fail(source_, begin,
         "found the number " + quoted(text) +
             ", wanted one that a float64 can hold: 0, or between 4.94e-324 and "
             "1.797e308; infinity is inf");
  if (error != std::errc() || stop != end) refuse();
  add(Token::Kind::kReal, begin, at_);
  tokens_.back().real = value;
}

void Lexer::read_string() {
  const size_t begin = at_;
  const char quote = at(at_++);
  for (;; ++at_) {
    if (at_ == source_.size() || at(at_) == '\n')
      fail(source_, begin,
           "found a string without an end, wanted " + std::string(quote == '"' ? "'\"'" : "\"'\"") +
               " on the same line");
    if (at(at_) == quote) break;
    if (at(at_) == '\\')
      fail(source_, at_, "found \"\\\" in a string, wanted only the characters themselves");
    if (at(at_) < ' ' || at(at_) >= 0x7f) refuse_character();  // char may be signed
  }
  ++at_;
  add(Token::Kind::kString, begin, at_);
  tokens_.back().text = source_.substr(begin + 1, at_ - begin - 2);
}

void Lexer::refuse_character() {
  int32_t code = 0;
  const size_t size = decode(source_, at_, &code);
  char number[24];
  std::snprintf(number, sizeof number, code < 0 ? "byte 0x%02X" : "character U+%04X",
                code < 0 ? static_cast<unsigned>(static_cast<unsigned char>(at(at_)))
                         : static_cast<unsigned>(code));
  std::string text = "found the " + std::string(number);
  if (size == 1 && code > ' ' && code < 0x7f) text = "found " + quoted(source_.substr(at_, 1));
  for (const Lookalike& one : kLookalikes)
    if (one.code == code) fail(source_, at_, text + ", wanted " + std::string(one.ascii));
  fail(source_, at_,
       text +
           ", wanted a letter, a digit or an operator of ASCII; other characters may stand in "
           "comments");
}

void Lexer::read_symbol() {
  const std::string_view rest = source_.substr(at_);
  for (const Advice& one : kForeign) {
    if (!rest.starts_with(one.found)) continue;
    if (rest.starts_with("!=")) continue;
    fail(source_, at_,
         "found " + quoted(one.found) + ", wanted an operator; " + std::string(one.advice));
  }
  for (const std::string_view symbol : kSymbolTexts) {
    if (!rest.starts_with(symbol)) continue;
    if (symbol == "(") ++open_;
    if (symbol == ")" && open_ > 0) --open_;
    add(Token::Kind::kSymbol, at_, at_ + symbol.size());
    at_ += symbol.size();
    return;
  }
  refuse_character();
}

std::vector<Token> Lexer::read() {
  while (at_ < source_.size()) {
    const char c = at(at_);
    if (c == ' ' || c == '\t' || (c == '\r' && at(at_ + 1) == '\n')) {
      ++at_;
    } else if (c == '#') {
      at_ = std::min(source_.find('\n', at_), source_.size());
    } else if (c == '\n') {
      if (open_ == 0) add_break(at_);
      ++at_;
    } else if (c == ';') {
      add_break(at_++);
    } else if (is_letter(c)) {
      read_name();
    } else if (is_digit(c) || (c == '.' && is_digit(at(at_ + 1)))) {
      read_number();
    } else if (c == '"' || c == '\'') {
      read_string();
    } else {
      read_symbol();
    }
  }
  // A mark for the end stands behind what was read last, not in an empty line.
  if (!tokens_.empty() && tokens_.back().kind == Token::Kind::kBreak) tokens_.pop_back();
  size_t end = 0;
  if (!tokens_.empty()) {
    end = tokens_.back().place + tokens_.back().text.size();
    if (tokens_.back().kind == Token::Kind::kString) end += 2;
  }
  add(Token::Kind::kEnd, end, end);
  return std::move(tokens_);
}

}  // namespace

bool is_name(std::string_view text) {
  if (text.empty() || is_digit(text[0])) return false;
  for (const char c : text)
    if (!is_letter(c) && !is_digit(c)) return false;
  return true;
}

std::vector<Token> read_tokens(std::string_view source) {
  if (source.size() > kMaxText)
    throw SyntaxError(1, 1,
                      "line 1, column 1: found a formula of " + std::to_string(source.size()) +
                          " bytes, wanted at most " + std::to_string(kMaxText) +
                          "; split it in two");
  return Lexer(source).read();
}

}  // namespace opdock::formula
