// Keeps what the steps of a build print: everything up to a limit, then only the end.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace opdock {

// Keeps at most about 1 MB, so that a compiler that prints without end fills neither memory nor
// disk.
class BuildLog {
 public:
  void add(std::string_view piece) {
    const size_t room = kHead - std::min(kHead, head_.size());
    head_.append(piece.substr(0, room));
    piece.remove_prefix(std::min(room, piece.size()));
    if (piece.empty()) return;
    tail_.append(piece);
    if (tail_.size() <= 2 * kTail) return;
    left_out_ += tail_.size() - kTail;
    tail_.erase(0, tail_.size() - kTail);
  }

  std::string text() const {
    if (left_out_ == 0) return head_ + tail_;
    return head_ + "\n[" + std::to_string(left_out_) + " bytes left out]\n" + tail_;
  }

 private:
  static constexpr size_t kHead = 512 << 10, kTail = 128 << 10;
  std::string head_, tail_;
  size_t left_out_ = 0;
};

}  // namespace opdock
