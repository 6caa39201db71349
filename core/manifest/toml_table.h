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

// A place in a file. Lines and columns count from 1; columns are in characters.
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
  // where: the table's name in messages ("[device]"). All references must outlive this object.
  TomlTable(const toml::table& table, std::string where, std::vector<Mistake>* mistakes)
      : table_(table), where_(std::move(where)), mistakes_(mistakes) {}

  TextPlace place() const;
  // Returns the place of the key's value, or of the table if it has no such key.
  TextPlace place(std::string_view key) const;
  // Returns the place of the last text `word` in the key's list, or of its value if that is no
  // list.
  TextPlace place(std::string_view key, std::string_view word) const;

  // Returns a text that is not empty; "" for an absent optional one.
  std::string text(std::string_view key, bool required);
  // Returns a list of texts that are not empty; if required, it has at least one.
  std::vector<std::string> texts(std::string_view key, bool required);
  // Returns a table of texts that are not empty, in the order of the keys; empty if there is none.
  std::vector<std::pair<std::string, std::string>> text_pairs(std::string_view key);
  // Returns the place of the value that `inner` has in the key's table.
  TextPlace place_in(std::string_view key, std::string_view inner) const;
  // Reports each of `words`, the texts in the key's list, that is not `known` or occurs twice.
  void check_words(std::string_view key, const std::vector<std::string>& words,
                   const std::vector<std::string>& known);
  // Reports each of `words` that occurs twice.
  void check_once(std::string_view key, const std::vector<std::string>& words);
  // Reports every key that is not one of `known`.
  void only(const std::vector<std::string>& known);

  void mistake(TextPlace place, const std::string& found, std::string wanted);
  // Reports a mistake in the key's value.
  void mistake(std::string_view key, TextPlace place, const std::string& found, std::string wanted);

 private:
  const toml::table& table_;
  std::string where_;
  std::vector<Mistake>* mistakes_;
};

// Returns the place of character `offset` of the text that begins at `begin`. file: the file's
// bytes. Returns `begin` itself if the file has the text with escapes.
TextPlace place_in(const std::string& file, TextPlace begin, std::string_view text, size_t offset);

// Returns ` (did you mean "x"?)` with the word of `known` nearest to `word`, or "" if none is near.
std::string guess(std::string_view word, const std::vector<std::string>& known);

}  // namespace opdock
