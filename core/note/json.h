// Parses strict JSON (RFC 8259) from small untrusted texts.
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
  std::vector<std::string> keys;  // an object's keys, as many as items, in the order of the text
  std::vector<Json> items;        // the values of an array or object

  // Returns the member named `key`; NULL if there is none, or if this is not an object.
  const Json* find(std::string_view key) const;
};

std::string_view to_text(Json::Type type);  // "null", "true or false", "an integer", …

inline constexpr size_t kMaxJsonDepth = 16;

// Parses the whole of `text`. Refuses, with the position in *problem, anything but one value,
// trailing bytes, invalid UTF-8, a byte order mark, duplicate keys, more than kMaxJsonDepth levels,
// NUL characters in strings, and numbers that fit neither int64 nor double.
std::optional<Json> parse_json(std::string_view text, std::string* problem);

}  // namespace opdock
