// How work that takes noticeable time reports what it does, and learns that it is to stop.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace opdock {

// Handed down to whatever compiles, builds or waits. Methods may be called from any thread, one at
// a time for one piece of work.
class Progress {
 public:
  virtual ~Progress() = default;
  // What is being done now: "building softmax: 3 of 12 steps". fraction: 0 to 1, below 0 where
  // unknown. A line that supersedes the one before it.
  virtual void step(std::string_view text, double fraction) = 0;
  // Called often, at least every 50 ms; true: stop, undo, and report Code::kCancelled.
  virtual bool cancelled() = 0;
};

}  // namespace opdock
