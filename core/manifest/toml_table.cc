// SPDX-License-Identifier: Apache-2.0
#include "manifest/toml_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "base/similar_names.h"
#include "base/texts.h"

namespace opdock {

static std::string describe(const toml::node& node) {
  std::ostringstream type;
  type << node.type();
  return type.str();
}

std::string guess(std::string_view word, const std::vector<std::string>& known) {
  const std::vector<std::string> similar = similar_names(std::string(word), known);
  return similar.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", similar.front());
}

static TextPlace place_of(const toml::source_region& source) {
  return {source.begin.line, source.begin.column};
}

TextPlace place_in(const std::string& file, TextPlace begin, std::string_view text, size_t offset) {
  size_t at = 0;
  for (uint32_t line = 1; line < begin.line && at != file.npos; ++line) {
    at = file.find('\n', at);
    if (at != file.npos) ++at;
  }
  if (at == file.npos) return begin;
  // Columns count characters, so the text is found only if everything before it in its line is
  // ASCII. The text includes neither its opening quotes nor a line's end right after three of them.
  at += begin.column - 1;
  if (at >= file.size()) return begin;
  const bool is_long = file.compare(at, 3, std::string(3, file[at])) == 0;
  size_t first = at + (is_long ? 3 : 1);
  if (is_long && file.compare(first, 1, "\n") == 0) ++first;
  if (first > file.size() || file.compare(first, text.size(), text) != 0) return begin;
  const size_t end = first + offset;
  const auto lines = std::count(file.begin() + static_cast<ptrdiff_t>(at),
                                file.begin() + static_cast<ptrdiff_t>(end), '\n');
  if (lines == 0) return {begin.line, begin.column + static_cast<uint32_t>(end - at)};
  return {begin.line + static_cast<uint32_t>(lines),
          static_cast<uint32_t>(end - file.rfind('\n', end - 1))};
}

TextPlace TomlTable::place() const {
  return place_of(table_.source());
}

TextPlace TomlTable::place(std::string_view key) const {
  const toml::node* node = table_.get(key);
  return node ? place_of(node->source()) : place();
}

TextPlace TomlTable::place(std::string_view key, std::string_view word) const {
  const toml::node* node = table_.get(key);
  TextPlace found = place(key);
  if (node == nullptr || !node->is_array()) return found;
  for (const toml::node& element : *node->as_array())
    if (element.value_exact<std::string>() == word) found = place_of(element.source());
  return found;
}

void TomlTable::mistake(TextPlace place, const std::string& found, std::string wanted) {
  mistakes_->push_back({place, where_.empty() ? found : where_ + ": " + found, std::move(wanted)});
}

void TomlTable::mistake(std::string_view key, TextPlace place, const std::string& found,
                        std::string wanted) {
  mistake(place, fmt::format("\"{}\": {}", key, found), std::move(wanted));
}

std::string TomlTable::text(std::string_view key, bool required) {
  const toml::node* node = table_.get(key);
  if (!node) {
    if (required) mistake(place(), fmt::format("no \"{}\"", key), "a text");
    return "";
  }
  std::optional<std::string> value = node->value_exact<std::string>();
  if (!value || value->empty())
    mistake(key, place(key), value ? "\"\"" : describe(*node), "a text that is not empty");
  return value.value_or("");
}

std::vector<std::string> TomlTable::texts(std::string_view key, bool required) {
  std::vector<std::string> out;
  const toml::node* node = table_.get(key);
  if (!node) {
    if (required) mistake(place(), fmt::format("no \"{}\"", key), "a list of texts");
    return out;
  }
  const toml::array* array = node->as_array();
  if (!array) {
    mistake(key, place(key), describe(*node), "a list of texts");
    return out;
  }
  for (const toml::node& element : *array) {
    std::optional<std::string> value = element.value_exact<std::string>();
    if (!value || value->empty()) {
      mistake(key, place_of(element.source()),
              (value ? "\"\"" : describe(element)) + " in the list", "texts that are not empty");
      continue;
    }
    out.push_back(*value);
  }
  if (required && array->empty()) mistake(key, place(key), "an empty list", "at least one text");
  return out;
}

std::vector<std::pair<std::string, std::string>> TomlTable::text_pairs(std::string_view key) {
  std::vector<std::pair<std::string, std::string>> pairs;
  const toml::node* node = table_.get(key);
  if (!node) return pairs;
  if (!node->is_table()) {
    mistake(key, place(key), describe(*node), "a table of texts");
    return pairs;
  }
  for (const auto& [inner, value] : *node->as_table()) {
    const std::optional<std::string> text = value.value_exact<std::string>();
    if (!text || text->empty()) {
      mistake(key, place_of(value.source()),
              fmt::format("\"{}\" is {}", inner.str(), text ? "\"\"" : describe(value)),
              "a text that is not empty");
      continue;
    }
    pairs.emplace_back(std::string(inner.str()), *text);
  }
  return pairs;
}

TextPlace TomlTable::place_in(std::string_view key, std::string_view inner) const {
  const toml::node* node = table_.get(key);
  const toml::node* value = node && node->is_table() ? node->as_table()->get(inner) : nullptr;
  return value ? place_of(value->source()) : place(key);
}

void TomlTable::check_words(std::string_view key, const std::vector<std::string>& words,
                            const std::vector<std::string>& known) {
  for (const std::string& word : words)
    if (std::find(known.begin(), known.end(), word) == known.end())
      mistake(key, place(key, word), fmt::format("\"{}\"", word),
              "one of: " + join(known) + guess(word, known));
  check_once(key, words);
}

void TomlTable::check_once(std::string_view key, const std::vector<std::string>& words) {
  for (auto word = words.begin(); word != words.end(); ++word)
    if (std::count(words.begin(), word, *word) == 1)
      mistake(key, place(key, *word), fmt::format("\"{}\" twice", *word), "it once");
}

void TomlTable::only(const std::vector<std::string>& known) {
  for (const auto& [key, node] : table_) {
    const std::string name(key.str());
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    mistake(place_of(key.source()), fmt::format("the unknown key \"{}\"", name),
            "one of: " + join(known) + guess(name, known));
  }
}

}  // namespace opdock
