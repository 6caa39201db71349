// Typed access to a TOML table that reports what is missing, misspelt or of the wrong type.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <toml++/toml.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace opdock {

class TomlTable {
 public:
  // where: how the table is called in messages ("[device]"). All references must outlive this.
  TomlTable(const toml::table& table, std::string file, std::string where,
            std::vector<std::string>* errors)
      : table_(table), file_(std::move(file)), where_(std::move(where)), errors_(errors) {}

  uint32_t line() const { return table_.source().begin.line; }
  uint32_t line(std::string_view key) const;

  // A text that is not empty. An absent optional one is "".
  std::string text(std::string_view key, bool required);
  // A list of texts that are not empty, none twice. Required: with at least one.
  std::vector<std::string> texts(std::string_view key, bool required);
  // Reports every key that is not one of `known`.
  void only(const std::vector<std::string>& known);
  void error(uint32_t line, const std::string& text);

 private:
  const toml::table& table_;
  std::string file_;
  std::string where_;
  std::vector<std::string>* errors_;
};

// The word of `known` nearest to `word` ("did you mean …"), or "" if none is near.
std::string nearest(std::string_view word, const std::vector<std::string>& known);

// "a, b, c"
std::string join(const std::vector<std::string>& words);

}  // namespace opdock
