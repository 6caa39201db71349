// SPDX-License-Identifier: Apache-2.0
#include "manifest/toml_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

namespace opdock {

static std::string describe(const toml::node& node) {
  std::ostringstream type;
  type << node.type();
  return type.str();
}

static size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t substituted = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

std::string nearest(std::string_view word, const std::vector<std::string>& known) {
  std::string best;
  size_t best_distance = word.size() / 3 + 2;
  for (const std::string& candidate : known) {
    size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string join(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, ", "));
}

uint32_t TomlTable::line(std::string_view key) const {
  const toml::node* node = table_.get(key);
  return node ? node->source().begin.line : line();
}

void TomlTable::error(uint32_t line, const std::string& text) {
  errors_->push_back(
      fmt::format("{}:{}: {}{}{}", file_, line, where_, where_.empty() ? "" : ": ", text));
}

std::string TomlTable::text(std::string_view key, bool required) {
  const toml::node* node = table_.get(key);
  if (!node) {
    if (required) error(line(), fmt::format("found no \"{}\", wanted a text", key));
    return "";
  }
  std::optional<std::string> value = node->value_exact<std::string>();
  if (!value) {
    error(line(key), fmt::format("\"{}\": found {}, wanted a text", key, describe(*node)));
    return "";
  }
  if (value->empty()) error(line(key), fmt::format("\"{}\": found \"\", wanted a text", key));
  return *value;
}

std::vector<std::string> TomlTable::texts(std::string_view key, bool required) {
  std::vector<std::string> out;
  const toml::node* node = table_.get(key);
  if (!node) {
    if (required) error(line(), fmt::format("found no \"{}\", wanted a list of texts", key));
    return out;
  }
  const toml::array* array = node->as_array();
  if (!array) {
    error(line(key), fmt::format("\"{}\": found {}, wanted a list of texts", key, describe(*node)));
    return out;
  }
  for (const toml::node& element : *array) {
    std::optional<std::string> value = element.value_exact<std::string>();
    if (!value || value->empty()) {
      error(element.source().begin.line,
            fmt::format("\"{}\": found {} in the list, wanted texts that are not empty", key,
                        value ? "\"\"" : describe(element)));
      continue;
    }
    out.push_back(*value);
  }
  if (required && array->empty())
    error(line(key), fmt::format("\"{}\": found an empty list, wanted at least one text", key));
  return out;
}

void TomlTable::only(const std::vector<std::string>& known) {
  for (const auto& [key, node] : table_) {
    std::string name(key.str());
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    std::string guess = nearest(name, known);
    error(key.source().begin.line,
          fmt::format("found the unknown key \"{}\", wanted one of: {}{}", name, join(known),
                      guess.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", guess)));
  }
}

}  // namespace opdock
