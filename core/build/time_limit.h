// Presents a build's time limit as a request to stop, so that the work checks for only one kind of
// request.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/reason.h"

namespace opdock {

class TimeLimit final : public Progress {
 public:
  using Clock = std::chrono::steady_clock;

  // The limit counts from now on. progress: the caller's, which may be NULL.
  TimeLimit(Progress* progress, double seconds)
      : progress_(progress),
        seconds_(seconds),
        deadline_(Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                     std::chrono::duration<double>(std::min(seconds, kLongest)))) {}

  void step(std::string_view text, double fraction) override {
    if (progress_ != nullptr) progress_->step(text, fraction);
  }
  bool cancelled() override {
    if (progress_ != nullptr && progress_->cancelled()) return true;
    is_over_ = is_over_ || Clock::now() >= deadline_;
    return is_over_;
  }

  Clock::time_point deadline() const { return deadline_; }

  // If the limit was the request to stop, changes each reason from `first` on that reports such a
  // request to build-timeout. what: a clause, such as "another process was still building it".
  void explain(std::vector<Reason>* reasons, size_t first, const std::string& what) const {
    for (size_t i = first; i < reasons->size() && is_over_; ++i) {
      if ((*reasons)[i].code != Code::kCancelled) continue;
      (*reasons)[i] = make_reason(
          Code::kBuildTimeout, fmt::format("{} when the build's {:g} s were over", what, seconds_),
          "an end of the build in time");
    }
  }

 private:
  static constexpr double kLongest = 1e9;  // seconds, within what the clock can hold

  Progress* const progress_;
  const double seconds_;
  const Clock::time_point deadline_;
  bool is_over_ = false;
};

}  // namespace opdock
