// The texts of a program's sources and headers.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace opdock {

// A text of its own or one that the library has built in, which is not copied: a kernel that is in
// the cache needs the digests of Opdock's headers, and never their 160 KB.
class Text {
 public:
  Text() = default;
  Text(std::string own) : own_(std::move(own)) {}
  Text(const char* own) : own_(own) {}
  // text: ends with a NUL, and lives as long as the process.
  static Text built_in(std::string_view text) {
    Text made;
    made.built_in_ = text;
    return made;
  }

  bool is_built_in() const { return built_in_.data() != nullptr; }
  std::string_view view() const { return built_in_.data() != nullptr ? built_in_ : own_; }
  operator std::string_view() const { return view(); }
  const char* c_str() const {
    return built_in_.data() != nullptr ? built_in_.data() : own_.c_str();
  }

 private:
  std::string own_;
  std::string_view built_in_;
};

struct SourceText {
  std::string name;  // as #include spells it: "opdock/device.cuh"
  Text text;
  std::string digest{};  // SHA-256 of the text, hex; empty: not known
  // The lines of a text that is built in which have an #include, so that finding what the text
  // includes reads no more. No data: not known.
  std::string_view include_lines{};

  // Returns a text with the same #include lines.
  std::string_view includes() const {
    return include_lines.data() != nullptr ? include_lines : text.view();
  }
};

}  // namespace opdock
