// Reads ninja's progress from its output.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include "base/progress.h"

namespace opdock {

// Parses ninja's "[3/12] …" as it arrives, and reports it as progress.
class StepCounter {
 public:
  StepCounter(const std::string& name, Progress* progress) : name_(name), progress_(progress) {}

  void add(std::string_view piece) {
    if (progress_ == nullptr) return;
    for (const char c : piece) {
      if (c == '\n') {
        read_line();
        line_.clear();
      } else if (line_.size() < 64) {
        line_ += c;
      }
    }
  }

 private:
  static constexpr double kSetupShare = 0.3;  // Meson's share of the time, for the progress bar

  void read_line() {
    int done = 0, all = 0;
    if (std::sscanf(line_.c_str(), "[%d/%d]", &done, &all) != 2 || all <= 0) return;
    progress_->step(
        "building " + name_ + ": " + std::to_string(done) + " of " + std::to_string(all) + " steps",
        kSetupShare + (1 - kSetupShare) * done / all);
  }

  const std::string& name_;
  Progress* progress_;
  std::string line_;
};

}  // namespace opdock
