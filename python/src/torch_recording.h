// Detects whether torch records a thread's operators (torch.jit.trace, make_fx). torch does not see
// Opdock's calls, so a recording would have their results as constants. Any thread, with the GIL.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "frame.h"

namespace opdock::python {

// A recording thread includes one of these dispatch keys; 0: unknown.
extern uint64_t torch_recording_keys;
// The address of this thread's included keys, followed by the excluded ones; NULL until a call has
// looked them up.
inline constinit thread_local const uint64_t* torch_thread_keys = nullptr;

// Returns whether torch may be recording in this thread; torch_records() then gives the exact
// answer.
inline bool torch_may_record() {
  const uint64_t* keys = torch_thread_keys;
  return keys == nullptr || torch_recording_keys == 0 ||
         (keys[0] & ~keys[1] & torch_recording_keys) != 0;
}

// Returns true with an error set if torch is recording (the error names `function`), or if asking
// torch failed.
bool torch_records(const char* function);

// Returns false with an error set if an argument is a torch tensor and torch is recording.
inline bool check_recording(const Frame& frame, const std::string& function) {
  return !frame.has_torch || !torch_may_record() || !torch_records(function.c_str());
}

// Finds the keys and their address. May throw error_already_set.
void find_torch_recording();
// Makes every call ask torch from now on; for tests.
void forget_torch_recording();

}  // namespace opdock::python
