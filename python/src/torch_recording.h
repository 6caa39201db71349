// Whether torch records the operators of a thread (torch.jit.trace, make_fx): what it makes of them
// would have a call's results as constants, as it does not see the call. Any thread, with the GIL.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "frame.h"

namespace opdock::python {

// A thread that records includes one of these keys; 0: not known.
extern uint64_t torch_recording_keys;
// Where this thread has its included keys, and behind them the excluded ones; NULL until a call has
// looked for them.
inline constinit thread_local const uint64_t* torch_thread_keys = nullptr;

// Whether torch may be recording in this thread; torch_records() knows.
inline bool torch_may_record() {
  const uint64_t* keys = torch_thread_keys;
  return keys == nullptr || torch_recording_keys == 0 ||
         (keys[0] & ~keys[1] & torch_recording_keys) != 0;
}

// True with an error set, which names the function, if torch is; or with another one.
bool torch_records(const char* function);

// False with an error set: an argument is a torch tensor, and torch records.
inline bool check_recording(const Frame& frame, const std::string& function) {
  return !frame.has_torch || !torch_may_record() || !torch_records(function.c_str());
}

// Looks for the keys and where they lie. May throw error_already_set.
void find_torch_recording();
// From now on torch is asked in every call (for tests).
void forget_torch_recording();

}  // namespace opdock::python
