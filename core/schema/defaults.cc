// SPDX-License-Identifier: Apache-2.0
#include "schema/defaults.h"

#include <charconv>

#include "opdock/plugin.h"

namespace opdock {
namespace {

SchemaDefault parse_scalar(Scanner* in, uint32_t tag) {
  SchemaDefault value;
  value.tag = tag;
  in->peek();
  size_t start = in->position();
  switch (tag) {
    case OPDOCK_TAG_BOOL:
      if (in->take("True")) {
        value.integer = 1;
      } else if (!in->take("False")) {
        in->fail("True or False");
      }
      break;
    case OPDOCK_TAG_INT: {
      std::string_view digits = in->number();
      if (digits.starts_with('+')) digits = {};
      auto [end, problem] =
          std::from_chars(digits.data(), digits.data() + digits.size(), value.integer);
      if (digits.empty() || problem != std::errc() || end != digits.data() + digits.size()) {
        in->fail("an integer that fits 64 bits", start);
      }
      break;
    }
    case OPDOCK_TAG_FLOAT:
    case OPDOCK_TAG_COMPLEX: {
      std::string_view digits = in->number();
      if (digits.starts_with('+')) digits = {};
      auto [end, problem] =
          std::from_chars(digits.data(), digits.data() + digits.size(), value.real);
      if (digits.empty() || problem != std::errc() || end != digits.data() + digits.size()) {
        in->fail("a number that fits a double, such as 1.0 or -1e-5", start);
      }
      break;
    }
    case OPDOCK_TAG_STRING: {
      std::optional<std::string> text = in->quoted();
      if (!text) in->fail("a text in double quotes");
      if (text) value.text = *std::move(text);
      break;
    }
    default:
      in->fail("None (a default of this type cannot be written)", start);
  }
  return value;
}

std::string number_text(double value) {
  char buffer[40];
  auto [end, problem] = std::to_chars(buffer, buffer + sizeof buffer, value);
  std::string text(buffer, end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

}  // namespace

SchemaDefault parse_default(Scanner* in, const SchemaType& type) {
  SchemaDefault value;
  in->peek();
  size_t start = in->position();
  if (in->take("None")) {
    if (!type.optional) {
      in->fail("a default of type " + to_text(type) + " (or make the type " + to_text(type) + "?)",
               start);
    }
    return value;  // OPDOCK_TAG_NONE
  }
  if (!type.list) return parse_scalar(in, type.tag);
  value.tag = OPDOCK_TAG_LIST;
  if (!in->take("[")) in->fail("a list such as [1, 2], or None for an optional one");
  if (in->take("]")) return value;
  while (!in->failed()) {
    value.items.push_back(parse_scalar(in, type.tag));
    if (in->take("]")) break;
    if (!in->take(",")) in->fail("',' or ']'");
  }
  return value;
}

std::string to_text(const SchemaDefault& value) {
  switch (value.tag) {
    case OPDOCK_TAG_BOOL:
      return value.integer ? "True" : "False";
    case OPDOCK_TAG_INT:
      return std::to_string(value.integer);
    case OPDOCK_TAG_FLOAT:
    case OPDOCK_TAG_COMPLEX:
      return number_text(value.real);
    case OPDOCK_TAG_STRING: {
      std::string text = "\"";
      for (char c : value.text) {
        if (c == '"' || c == '\\') text += '\\';
        text += c;
      }
      return text + '"';
    }
    case OPDOCK_TAG_LIST: {
      std::string text = "[";
      for (const SchemaDefault& item : value.items) {
        if (text.size() > 1) text += ", ";
        text += to_text(item);
      }
      return text + "]";
    }
    default:
      return "None";
  }
}

}  // namespace opdock
