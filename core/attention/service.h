// Attention by cuDNN: chooses, keeps and runs the library's plans.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "driver/driver.h"
#include "opdock/attention.h"

namespace opdock::attention {

// A call on a CUDA device, as far as the service needs it.
class Caller {
 public:
  Caller(const opdock_call* call, Driver* driver) : call_(call), driver_(driver) {}
  virtual ~Caller() = default;
  const opdock_call* call() const { return call_; }
  Driver* driver() const { return driver_; }

  // Returns the op's name.
  virtual const std::string& op() const = 0;
  // Returns whether equal calls have to give equal bits.
  virtual bool wants_equal_bits() const = 0;
  // Finds out whether the call's stream is being captured. Has written a text on failure.
  virtual opdock_status is_capturing(bool* out) = 0;

 private:
  const opdock_call* call_;
  Driver* driver_;
};

enum class Outcome {
  kServed,
  kDeclined,  // the caller's own kernels have to compute it; `why` says why
  kFailed,    // `status` says how; a text is written
};
struct Answer {
  Outcome outcome = Outcome::kServed;
  std::string_view why = {};  // valid until this thread's next call of the service
  opdock_status status = OPDOCK_OK;
};

struct Form;

// Implement the functions of the table. The device's context is current in prepare and run, and
// plan makes it current if it has to.
Answer plan(Caller* caller, const Form& form, bool has_data, uint64_t* workspace_bytes);
void prepare(Caller* caller);
Answer run(Caller* caller, const Form& form, const opdock_attention& what, void* workspace,
           uint64_t workspace_bytes);

}  // namespace opdock::attention
