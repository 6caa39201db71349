// SPDX-License-Identifier: Apache-2.0
#include "formula/syntax_error.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "formula/formula.h"

namespace opdock::formula {
namespace {

constexpr size_t kMaxQuoted = 40;  // characters
// The numbers of characters of a long line that are shown before and behind the mark.
constexpr size_t kMaxBefore = 60, kMaxBehind = 40;
constexpr size_t kMaxCompared = 64;  // longer names are similar to none

std::string escaped(std::string_view text, size_t at, size_t size, int32_t code) {
  if (size == 1 && code >= ' ' && code < 0x7f) return std::string(1, text[at]);
  char out[16];
  if (code < 0x80) {
    std::snprintf(out, sizeof out, "\\x%02x",
                  static_cast<unsigned>(static_cast<unsigned char>(text[at])));
  } else {
    std::snprintf(out, sizeof out, code > 0xffff ? "\\U%08x" : "\\u%04x",
                  static_cast<unsigned>(code));
  }
  return out;
}

// Returns how many insertions, deletions, replacements and swaps of neighbouring letters turn `a`
// into `b`.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        now[j] = std::min(now[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, now);
  }
  return last[b.size()];
}

}  // namespace

size_t decode(std::string_view text, size_t at, int32_t* code) {
  const auto byte = [&](size_t i) -> uint32_t {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  const uint32_t first = byte(at);
  *code = static_cast<int32_t>(first);
  if (first < 0x80) return 1;
  *code = -1;
  const size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4) return 1;
  uint32_t value = first & (0x7fu >> size);
  for (size_t i = 1; i < size; ++i) {
    if ((byte(at + i) & 0xc0) != 0x80) return 1;
    value = value << 6 | (byte(at + i) & 0x3f);
  }
  const bool is_overlong = value < (size == 4 ? 0x10000u : size == 3 ? 0x800u : 0x80u);
  if (is_overlong || value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) return 1;
  *code = static_cast<int32_t>(value);
  return size;
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  int32_t code = 0;
  size_t count = 0;
  for (size_t at = 0, size = 0; at < text.size(); at += size) {
    if (++count > kMaxQuoted) return out + "…\"";
    size = decode(text, at, &code);
    out += escaped(text, at, size, code);
  }
  return out + "\"";
}

void fail(std::string_view source, size_t place, const std::string& text) {
  place = std::min(place, source.size());
  const size_t begin = place == 0 ? 0 : source.rfind('\n', place - 1) + 1;  // npos + 1 is 0
  size_t end = std::min(source.find('\n', place), source.size());
  if (end > place && source[end - 1] == '\r') --end;
  const auto line =
      std::count(source.begin(), source.begin() + static_cast<ptrdiff_t>(begin), '\n');
  std::vector<std::string> shown;  // for each character of the line
  size_t column = 0;
  int32_t code = 0;
  for (size_t at = begin, size = 0; at < end; at += size) {
    size = decode(source, at, &code);
    if (at < place) ++column;
    shown.push_back(code == '\t' ? "\t" : escaped(source, at, size, code));
  }
  size_t first = column, last = column;
  for (size_t width = 0; first > 0; --first)
    if ((width += shown[first - 1].size()) > kMaxBefore) break;
  for (size_t width = 0; last < shown.size(); ++last)
    if ((width += shown[last].size()) > kMaxBehind) break;
  std::string above = first > 0 ? "…" : "", below = first > 0 ? " " : "";
  for (size_t i = first; i < last; ++i) {
    above += shown[i];
    if (i < column) below += shown[i] == "\t" ? "\t" : std::string(shown[i].size(), ' ');
  }
  if (last < shown.size()) above += "…";
  throw SyntaxError(static_cast<int>(line) + 1, static_cast<int>(column) + 1,
                    "line " + std::to_string(line + 1) + ", column " + std::to_string(column + 1) +
                        ": " + text + "\n  " + above + "\n  " + below + "^");
}

std::string did_you_mean(std::string_view name, const std::vector<std::string_view>& known) {
  if (name.size() > kMaxCompared) return "";
  std::vector<std::pair<size_t, std::string_view>> found;
  for (const std::string_view other : known) {
    if (other.size() > kMaxCompared) continue;
    const size_t allowed = std::max<size_t>(std::max(name.size(), other.size()) / 3, 1);
    const size_t away = distance(name, other);
    // A name of a single letter is no misspelling of another one.
    const bool is_near = away <= allowed && away < std::max(name.size(), other.size());
    if (is_near || (name.size() >= 3 && other.starts_with(name))) found.emplace_back(away, other);
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  if (found.size() > 3) found.resize(3);
  std::string out;
  for (size_t i = 0; i < found.size(); ++i) {
    out += i == 0 ? "; did you mean " : i + 1 == found.size() ? " or " : ", ";
    out += found[i].second;
  }
  return found.empty() ? out : out + "?";
}

}  // namespace opdock::formula
