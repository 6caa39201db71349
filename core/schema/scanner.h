// Reads small grammars (schemas, shape rules) character by character, with errors that say where.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cctype>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace opdock {

// The first error sticks: after it every method finds nothing, so that a parser may check once.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  bool failed() const { return failed_; }
  size_t position() const { return at_; }
  void rewind(size_t position) { at_ = position; }
  // Say what the error found, "'Tensor(a)' at position 7 of "…"", and what it wanted there.
  const std::string& found() const { return found_; }
  const std::string& wanted() const { return wanted_; }

  // Records an error at `position` (default: the current one).
  bool fail(std::string wanted, size_t position = std::string_view::npos) {
    if (failed_) return false;
    failed_ = true;
    if (position != std::string_view::npos) at_ = position;
    skip_space();
    found_ = (at_ >= text_.size() ? std::string("the end") : "'" + token_here() + "'") +
             " at position " + std::to_string(at_) + " of \"" + std::string(text_) + "\"";
    wanted_ = std::move(wanted);
    return false;
  }

  char peek() {
    skip_space();
    return failed_ || at_ >= text_.size() ? '\0' : text_[at_];
  }
  bool at_end() {
    skip_space();
    return at_ >= text_.size();
  }
  // Takes `token` if it comes next; a token of letters must be a whole word.
  bool take(std::string_view token) {
    if (failed_) return false;
    skip_space();
    if (text_.substr(at_, token.size()) != token) return false;
    size_t end = at_ + token.size();
    if (is_word(token.back()) && end < text_.size() && is_word(text_[end])) return false;
    at_ = end;
    return true;
  }
  bool expect(std::string_view token) {
    return take(token) || fail("'" + std::string(token) + "'");
  }
  // Takes an identifier: a letter or '_', then letters, digits and '_'. Empty if none comes next.
  std::string_view word() {
    if (failed_) return {};
    skip_space();
    size_t end = at_;
    while (end < text_.size() && is_word(text_[end])) ++end;
    if (end == at_ || std::isdigit(static_cast<unsigned char>(text_[at_]))) return {};
    std::string_view found = text_.substr(at_, end - at_);
    at_ = end;
    return found;
  }
  // Takes and returns the rest, without spaces around it.
  std::string_view rest() {
    skip_space();
    std::string_view found = failed_ ? std::string_view() : text_.substr(at_);
    while (!found.empty() && found.back() == ' ') found.remove_suffix(1);
    at_ = text_.size();
    return found;
  }
  // Takes the characters of a number: sign, digits, '.', exponent. Empty if none comes next.
  std::string_view number() {
    if (failed_) return {};
    skip_space();
    size_t end = at_;
    if (end < text_.size() && (text_[end] == '-' || text_[end] == '+')) ++end;
    size_t digits = end;
    while (end < text_.size() && (is_digit(end) || text_[end] == '.' ||
                                  ((text_[end] == 'e' || text_[end] == 'E') && end > digits) ||
                                  ((text_[end] == '-' || text_[end] == '+') && end > digits &&
                                   (text_[end - 1] == 'e' || text_[end - 1] == 'E')))) {
      ++end;
    }
    if (end == digits || !(is_digit(digits) || text_[digits] == '.')) return {};
    std::string_view found = text_.substr(at_, end - at_);
    at_ = end;
    return found;
  }
  // Takes a text in double quotes, with \" and \\ for those two characters. nullopt if none comes
  // next.
  std::optional<std::string> quoted() {
    if (peek() != '"') return std::nullopt;
    size_t start = at_++;
    std::string value;
    while (at_ < text_.size() && text_[at_] != '"') {
      if (static_cast<unsigned char>(text_[at_]) < ' ') {
        fail("a text without control characters");
        return std::nullopt;
      }
      if (text_[at_] == '\\') {
        ++at_;
        if (at_ >= text_.size() || (text_[at_] != '"' && text_[at_] != '\\')) {
          fail("'\\\"' or '\\\\' after a backslash", at_ - 1);
          return std::nullopt;
        }
      }
      value += text_[at_++];
    }
    if (at_ >= text_.size()) {
      fail("a closing '\"'", start);
      return std::nullopt;
    }
    ++at_;
    return value;
  }

 private:
  static bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }
  bool is_digit(size_t i) const { return std::isdigit(static_cast<unsigned char>(text_[i])); }
  void skip_space() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  std::string token_here() const {
    size_t end = at_;
    if (is_word(text_[end])) {
      while (end < text_.size() && is_word(text_[end])) ++end;
    } else {
      ++end;
    }
    return std::string(text_.substr(at_, end - at_));
  }

  std::string_view text_;
  size_t at_ = 0;
  bool failed_ = false;
  std::string found_, wanted_;
};

}  // namespace opdock
