// Lets a program cancel the reading of files, and run its other threads meanwhile.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "chain/hooks.h"
#include "inspect/survey.h"
#include "note/reader.h"
#include "opdock/types.hpp"

namespace opdock {

// While an object of this class lives, reading files on this thread throws Error (OPDOCK_CANCELLED)
// once the program's `cancelled` hook returns true.
class StoppableReading {
 public:
  explicit StoppableReading(const Hooks& hooks)
      : waiting_(hooks), progress_(hooks), watch_([this] {
          if (progress_.cancelled()) throw Error(OPDOCK_CANCELLED, kInspectStopped);
        }) {}

 private:
  Waiting waiting_;
  HookedProgress progress_;
  ReadWatch watch_;
};

}  // namespace opdock
