// SPDX-License-Identifier: Apache-2.0
#include "note/json.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

namespace opdock {
namespace {

// Builds the tree from the parser's events, and refuses texts that the parser itself would accept.
class TreeBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit TreeBuilder(std::string* problem) : problem_(problem) {}
  Json& root() { return root_; }

  bool null() override { return place(Json::Type::kNull) != nullptr; }
  bool boolean(bool value) override {
    place(Json::Type::kBool)->boolean = value;
    return true;
  }
  bool number_integer(number_integer_t value) override {
    place(Json::Type::kInteger)->integer = value;
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return refuse("the number " + std::to_string(value) + ", which 64 bits do not hold");
    }
    return number_integer(static_cast<int64_t>(value));
  }
  bool number_float(number_float_t value, const string_t&) override {
    place(Json::Type::kReal)->real = value;
    return true;
  }
  bool string(string_t& value) override {
    if (has_nul(value)) return refuse("a string with a NUL character");
    place(Json::Type::kString)->text = value;  // a copy: the parser reuses its buffer
    return true;
  }
  bool binary(binary_t&) override { return refuse("binary data"); }
  bool start_object(std::size_t) override { return open(Json::Type::kObject); }
  bool start_array(std::size_t) override { return open(Json::Type::kArray); }
  bool end_array() override {
    stack_.pop_back();
    return true;
  }
  bool key(string_t& value) override {
    if (has_nul(value)) return refuse("a key with a NUL character");
    stack_.back()->keys.push_back(value);
    return true;
  }
  bool end_object() override {
    std::vector<std::string_view> keys(stack_.back()->keys.begin(), stack_.back()->keys.end());
    std::sort(keys.begin(), keys.end());
    const auto twice = std::adjacent_find(keys.begin(), keys.end());
    if (twice != keys.end()) return refuse("the key \"" + std::string(*twice) + "\" twice");
    stack_.pop_back();
    return true;
  }
  bool parse_error(std::size_t position, const std::string& last,
                   const nlohmann::detail::exception&) override {
    // `last` may hold bytes that are not UTF-8, so a report shows only its printable part.
    std::string shown;
    for (const char c : last.substr(0, 24)) shown += c >= 0x20 && c < 0x7f ? c : '?';
    return refuse("invalid JSON at byte " + std::to_string(position) + ", near \"" + shown + "\"");
  }

 private:
  static bool has_nul(const std::string& text) { return text.find('\0') != std::string::npos; }

  bool refuse(std::string problem) {
    *problem_ = std::move(problem);
    return false;
  }
  Json* place(Json::Type type) {
    Json* value = &root_;
    if (!stack_.empty()) value = &stack_.back()->items.emplace_back();
    value->type = type;
    return value;
  }
  bool open(Json::Type type) {
    if (stack_.size() == kMaxJsonDepth) {
      return refuse("more than " + std::to_string(kMaxJsonDepth) + " levels of nesting");
    }
    Json* const value = place(type);
    value->items.reserve(4);
    if (type == Json::Type::kObject) value->keys.reserve(8);
    stack_.push_back(value);  // the item does not move while its children are added
    return true;
  }

  Json root_;
  std::vector<Json*> stack_;
  std::string* problem_;
};

}  // namespace

const Json* Json::find(std::string_view key) const {
  if (type != Type::kObject) return nullptr;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i] == key) return &items[i];
  }
  return nullptr;
}

std::string_view to_text(Json::Type type) {
  switch (type) {
    case Json::Type::kNull:
      return "null";
    case Json::Type::kBool:
      return "true or false";
    case Json::Type::kInteger:
      return "an integer";
    case Json::Type::kReal:
      return "a number with a fraction or exponent";
    case Json::Type::kString:
      return "a string";
    case Json::Type::kArray:
      return "an array";
    case Json::Type::kObject:
      return "an object";
  }
  return "";
}

std::optional<Json> parse_json(std::string_view text, std::string* problem) {
  if (text.substr(0, 3) == "\xef\xbb\xbf") {  // the parser would skip it
    *problem = "a byte order mark";
    return std::nullopt;
  }
  // The parser would take a NUL for the end of the text.
  if (const size_t nul = text.find('\0'); nul != text.npos) {
    *problem = "a NUL byte at " + std::to_string(nul);
    return std::nullopt;
  }
  TreeBuilder builder(problem);
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) return std::nullopt;
  return std::move(builder.root());
}

}  // namespace opdock
