// The files that a source names: in its #include lines, or, of a meson.build, in its texts.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace opdock {

// Every text in a line of a meson.build; of texts that are joined by '/' each beginning of the
// whole: 'src' / 'a.cc' gives "src" and "src/a.cc". What a program computes is not found.
std::vector<std::string> texts_of(std::string_view meson_line);

// Cuts what is read piece by piece into lines. One of more than 64 KiB, as data has, is passed
// over.
class LineCutter {
 public:
  explicit LineCutter(std::function<void(std::string_view)> line) : line_(std::move(line)) {}
  void add(std::string_view piece);
  void finish();  // the last line may have no end

 private:
  static constexpr size_t kLongest = 64 << 10;

  const std::function<void(std::string_view)> line_;
  std::string begun_;
  bool is_too_long_ = false;
};

}  // namespace opdock
