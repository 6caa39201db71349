// The words of a list of architectures, with their positions, and the error that names one.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "base/reason.h"

namespace opdock {

class ListScanner {
 public:
  ListScanner(std::string_view text, std::string_view origin) : text_(text), origin_(origin) {}

  // The next word, or false at the end.
  bool next(std::string_view* word) {
    constexpr std::string_view kSeparators = ";, \t\r\n";
    begin_ = text_.find_first_not_of(kSeparators, end_);
    if (begin_ == text_.npos) return false;
    end_ = text_.find_first_of(kSeparators, begin_);
    if (end_ == text_.npos) end_ = text_.size();
    *word = text_.substr(begin_, end_ - begin_);
    return true;
  }

  // arch-list-invalid at the last word given. `advice` completes the kind's own, and may be empty.
  Reason invalid(std::string_view word, std::string wanted, std::string advice) const;
  // The same of a list without any word.
  Reason empty(std::string wanted) const;

 private:
  std::string_view text_, origin_;
  size_t begin_ = 0, end_ = 0;
};

}  // namespace opdock
