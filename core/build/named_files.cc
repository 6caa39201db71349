// SPDX-License-Identifier: Apache-2.0
#include "build/named_files.h"

#include <algorithm>

namespace opdock {

std::vector<std::string> texts_of(std::string_view meson_line) {
  std::vector<std::string> texts;
  std::string joined;       // this text, after those that '/' joins it to
  std::string_view before;  // what lies between the previous text and this one
  for (size_t at = 0; at < meson_line.size();) {
    if (meson_line[at] == '#') break;
    if (meson_line[at] != '\'') {
      ++at;
      continue;
    }
    const size_t end = meson_line.find('\'', at + 1);
    if (end == meson_line.npos) break;
    const std::string text(meson_line.substr(at + 1, end - at - 1));
    const bool is_joined = !joined.empty() && before.find('/') != before.npos &&
                           before.find_first_not_of(" \t/") == before.npos;
    joined = is_joined ? joined + "/" + text : text;
    if (!text.empty()) texts.push_back(joined);
    at = end + 1;
    before = meson_line.substr(at, meson_line.find('\'', at) - at);
  }
  return texts;
}

void LineCutter::add(std::string_view piece) {
  while (!piece.empty()) {
    const size_t end = std::min(piece.find('\n'), piece.size());
    is_too_long_ = is_too_long_ || begun_.size() + end > kLongest;
    if (is_too_long_) {
      begun_.clear();
    } else {
      begun_.append(piece.substr(0, end));
    }
    if (end == piece.size()) return;
    finish();
    piece.remove_prefix(end + 1);
  }
}

void LineCutter::finish() {
  if (!is_too_long_ && !begun_.empty()) line_(begun_);
  begun_.clear();
  is_too_long_ = false;
}

}  // namespace opdock
