// Typed access to a TOML table that reports what is missing, misspelt or of the wrong type.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <toml++/toml.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace opdock {

// In a file, both from 1; columns in characters.
struct TextPlace {
  uint32_t line = 1;
  uint32_t column = 1;
};

struct Mistake {
  TextPlace place;
  std::string found;  // with the table and key that it is in: `[device]: "kernels": an empty list`
  std::string wanted;
};

class TomlTable {
 public:
  // where: what messages call the table ("[device]"). All references must outlive this.
  TomlTable(const toml::table& table, std::string where, std::vector<Mistake>* mistakes)
      : table_(table), where_(std::move(where)), mistakes_(mistakes) {}

  TextPlace place() const;
  // Of the key's value; of the table where it has no such key.
  TextPlace place(std::string_view key) const;
  // Of the last text `word` in the key's list, or in its text.
  TextPlace place(std::string_view key, std::string_view word) const;

  // A text that is not empty. An absent optional one is "".
  std::string text(std::string_view key, bool required);
  // A list of texts that are not empty. Required: with at least one.
  std::vector<std::string> texts(std::string_view key, bool required);
  // A table of texts that are not empty, in the keys' order; empty if there is none.
  std::vector<std::pair<std::string, std::string>> text_pairs(std::string_view key);
  // Of the value that `inner` has in the key's table.
  TextPlace place_in(std::string_view key, std::string_view inner) const;
  // Reports each of `words`, which the key's list has, that is not `known` or is there twice.
  void check_words(std::string_view key, const std::vector<std::string>& words,
                   const std::vector<std::string>& known);
  // Reports each of `words` that is there twice.
  void check_once(std::string_view key, const std::vector<std::string>& words);
  // Reports every key that is not one of `known`.
  void only(const std::vector<std::string>& known);

  void mistake(TextPlace place, const std::string& found, std::string wanted);
  // Of the key's value.
  void mistake(std::string_view key, TextPlace place, const std::string& found, std::string wanted);

 private:
  const toml::table& table_;
  std::string where_;
  std::vector<Mistake>* mistakes_;
};

// Where in `file`, the file's bytes, character `offset` of the text that begins at `begin` stands;
// `begin` itself if the file has the text with escapes or on several lines.
TextPlace place_in(const std::string& file, TextPlace begin, std::string_view text, size_t offset);

// ` (did you mean "x"?)` with the word of `known` nearest to `word`, or "" if none is near.
std::string guess(std::string_view word, const std::vector<std::string>& known);

}  // namespace opdock
