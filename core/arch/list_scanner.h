// Splits a list of architectures into words with positions, and makes the errors that name them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "base/reason.h"

namespace opdock {

class ListScanner {
 public:
  ListScanner(std::string_view text, std::string_view origin) : text_(text), origin_(origin) {}

  // Finds the next word. Returns false at the end.
  bool next(std::string_view* word) {
    constexpr std::string_view kSeparators = ";, \t\r\n";
    begin_ = text_.find_first_not_of(kSeparators, end_);
    if (begin_ == text_.npos) return false;
    end_ = text_.find_first_of(kSeparators, begin_);
    if (end_ == text_.npos) end_ = text_.size();
    *word = text_.substr(begin_, end_ - begin_);
    return true;
  }

  // Returns arch-list-invalid for the last word found. `advice` replaces the code's own if not
  // empty.
  Reason invalid(std::string_view word, std::string wanted, std::string advice) const;
  // Returns the same error for a list without any word.
  Reason empty(std::string wanted) const;

 private:
  std::string_view text_, origin_;
  size_t begin_ = 0, end_ = 0;
};

}  // namespace opdock
