// An interface by which slow work reports its progress and learns that it is cancelled.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace opdock {

// Passed down to all code that compiles, builds or waits. Any thread may call the methods, but for
// one piece of work only one thread at a time.
class Progress {
 public:
  virtual ~Progress() = default;
  // Reports the current step, such as "building softmax: 3 of 12 steps". It replaces the step
  // reported before. fraction: 0 to 1, or negative if it is unknown.
  virtual void step(std::string_view text, double fraction) = 0;
  // Called often, at least every 50 ms. If it returns true, the work stops, undoes what it did and
  // reports Code::kCancelled.
  virtual bool cancelled() = 0;
};

}  // namespace opdock
