// Finds the files that a source names: the string literals of a meson.build, and a cutter into
// lines for finding #include lines (jit/includes.h).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace opdock {

// Returns every string literal in a line of a meson.build. For literals that are joined by '/' it
// returns each beginning of the whole: 'src' / 'a.cc' gives "src" and "src/a.cc". Names that the
// build computes are not found.
std::vector<std::string> texts_of(std::string_view meson_line);

// Cuts text that arrives in pieces into lines. Lines of more than 64 KiB, as data files have, are
// skipped.
class LineCutter {
 public:
  explicit LineCutter(std::function<void(std::string_view)> line) : line_(std::move(line)) {}
  void add(std::string_view piece);
  void finish();  // passes on a last line without a newline

 private:
  static constexpr size_t kLongest = 64 << 10;

  const std::function<void(std::string_view)> line_;
  std::string begun_;
  bool is_too_long_ = false;
};

}  // namespace opdock
