// Strict JSON (RFC 8259) for small texts from anybody.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace opdock {

struct Json {
  enum class Type { kNull, kBool, kInteger, kReal, kString, kArray, kObject };
  Type type = Type::kNull;
  bool boolean = false;
  int64_t integer = 0;
  double real = 0;
  std::string text;
  std::vector<std::string> keys;  // of an object: as many as items, in the text's order
  std::vector<Json> items;        // of an array or object

  // The member named `key`, or NULL; on anything but an object NULL.
  const Json* find(std::string_view key) const;
};

std::string_view to_text(Json::Type type);  // "null", "true or false", "integer", …

inline constexpr size_t kMaxJsonDepth = 16;

// Parses the whole of `text`. Refused, with the position in *problem: anything but one value,
// trailing bytes, invalid UTF-8, a byte order mark, duplicate keys, more than kMaxJsonDepth levels,
// NUL characters in strings, and numbers that neither int64 nor double holds.
std::optional<Json> parse_json(std::string_view text, std::string* problem);

}  // namespace opdock
