// SPDX-License-Identifier: Apache-2.0
#include "base/utf8.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "fmt/format.h"

namespace opdock {
namespace {

// Length of the well-formed UTF-8 sequence that `text` begins with, or 0.
size_t sequence_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  if ((lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xED && byte(1) > 0x9F)) return 0;
  if ((lead == 0xF0 && byte(1) < 0x90) || (lead == 0xF4 && byte(1) > 0x8F)) return 0;
  return length;
}

// Returns the code point of a sequence that sequence_length() has accepted.
uint32_t code_point(std::string_view sequence) {
  const uint8_t lead = static_cast<uint8_t>(sequence.front());
  if (sequence.size() == 1) return lead;
  uint32_t code = lead & (0x7Fu >> sequence.size());
  for (const char next : sequence.substr(1)) code = code << 6 | (static_cast<uint8_t>(next) & 0x3F);
  return code;
}

// Source: Unicode 15, the general categories Cc, Cf, Zl and Zp, and the block of tags.
bool is_hidden(uint32_t code) {
  constexpr uint32_t kRanges[][2] = {{0, 0x1F},          {0x7F, 0x9F},       {0xAD, 0xAD},
                                     {0x600, 0x605},     {0x61C, 0x61C},     {0x6DD, 0x6DD},
                                     {0x70F, 0x70F},     {0x890, 0x891},     {0x8E2, 0x8E2},
                                     {0x180E, 0x180E},   {0x200B, 0x200F},   {0x2028, 0x202E},
                                     {0x2060, 0x206F},   {0xFEFF, 0xFEFF},   {0xFFF9, 0xFFFB},
                                     {0x110BD, 0x110BD}, {0x110CD, 0x110CD}, {0x13430, 0x1343F},
                                     {0x1BCA0, 0x1BCA3}, {0x1D173, 0x1D17A}, {0xE0000, 0xE0FFF}};
  return std::any_of(std::begin(kRanges), std::end(kRanges),
                     [code](const auto& range) { return code >= range[0] && code <= range[1]; });
}

template <typename IsHidden>
std::string escape(std::string_view text, IsHidden hidden) {
  std::string escaped;
  while (!text.empty()) {
    const size_t length = sequence_length(text);
    const std::string_view one = text.substr(0, length == 0 ? 1 : length);
    text.remove_prefix(one.size());
    const uint32_t code = length == 0 ? static_cast<uint8_t>(one.front()) : code_point(one);
    if (length != 0 && !hidden(code)) {
      escaped += one;
    } else {
      escaped += code < 0x100     ? fmt::format("\\x{:02x}", code)
                 : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                                  : fmt::format("\\U{:08x}", code);
    }
  }
  return escaped;
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = sequence_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string escape_bytes(std::string_view text) {
  return escape(text, [](uint32_t) { return false; });
}

std::string printable(std::string_view text) {
  return escape(text, is_hidden);
}

}  // namespace opdock
