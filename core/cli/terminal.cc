// SPDX-License-Identifier: Apache-2.0
#include "terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace opdock::cli {
namespace {

Terminal find_terminal() {
  Terminal found;
  if (isatty(STDOUT_FILENO) == 0) return found;
  const char* term = std::getenv("TERM");
  const char* no_colour = std::getenv("NO_COLOR");
  found.has_colour = term != nullptr && std::strcmp(term, "dumb") != 0 &&
                     (no_colour == nullptr || *no_colour == '\0');
  winsize size{};
  const bool is_known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  found.width = std::max<size_t>(is_known ? size.ws_col : 80, 40);
  return found;
}

const char* escape_of(Style style) {
  switch (style) {
    case Style::kBold:
      return "\033[1m";
    case Style::kDim:
      return "\033[2m";
    case Style::kGood:
      return "\033[32m";
    case Style::kBad:
      return "\033[31m";
    case Style::kUnsure:
      return "\033[33m";
    case Style::kPlain:
      break;
  }
  return "";
}

}  // namespace

const Terminal& terminal() {
  static const Terminal found = find_terminal();
  return found;
}

std::string styled(std::string_view text, Style style) {
  if (!terminal().has_colour || style == Style::kPlain) return std::string(text);
  return escape_of(style) + std::string(text) + "\033[0m";
}

size_t columns(std::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }));
}

std::string lines(std::string_view text, size_t indent) {
  std::string out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    out += std::string(indent, ' ') + printable(text.substr(0, end)) + "\n";
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

std::string paragraph(std::string_view text, size_t indent) {
  std::string out(indent, ' ');
  size_t column = indent;
  const size_t width = terminal().width;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    const size_t size = columns(word);
    if (column > indent && width != 0 && column + 1 + size > width) {
      out += '\n';
      out.append(indent + 2, ' ');
      column = indent + 2;
    } else if (begin != 0) {
      out += ' ';
      ++column;
    }
    out += word;
    column += size;
    begin = end + 1;
  }
  return out + "\n";
}

std::string table(const std::vector<std::vector<Cell>>& rows) {
  std::vector<size_t> widths;
  for (const std::vector<Cell>& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], columns(row[i].text));
  }
  std::string out;
  for (const std::vector<Cell>& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      out += styled(row[i].text, row[i].style);
      if (i + 1 < row.size()) out += std::string(widths[i] - columns(row[i].text) + 2, ' ');
    }
    out += '\n';
  }
  return out;
}

void print_error(std::string_view text) {
  std::string all = lines(text, 2);
  all.erase(0, 2);
  std::fprintf(stderr, "opdock: %s", all.empty() ? "\n" : all.c_str());
}

}  // namespace opdock::cli
