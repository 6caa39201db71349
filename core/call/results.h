// The results of one call: the values that the caller hands in and gets back, the fresh tensors
// among them, and what the op's run sees.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "call/invocation.h"

namespace opdock {

// Lives on the stack of the thread that calls, between plan and the end of run. What it has made
// and not handed over goes with it.
class ResultSet {
 public:
  ResultSet(Invocation* in, opdock_value* callers, uint32_t count)
      : in_(*in), callers_(callers), count_(count) {}
  ~ResultSet() {
    if (has_made_) [[unlikely]]
      release();
  }
  ResultSet(const ResultSet&) = delete;
  ResultSet& operator=(const ResultSet&) = delete;

  // Takes the caller's values apart and checks them against the plan. may_lack: what is
  // OPDOCK_TAG_NONE is to be allocated.
  opdock_status take(const opdock_plan& plan, bool may_lack, const ErrorBuffer& error);
  // The fresh tensors of all results, as opdock_plan.outputs has them; NULL: not allocated yet.
  opdock_tensor* const* tensors() const { return tensors_; }

  // Allocates those that lack; the context is entered.
  opdock_status allocate(const opdock_plan& plan, const ErrorBuffer& error);
  // What run is to see.
  opdock_value* for_run(const opdock_value* args);
  // After run: checks what it has set, and gives all to the caller if `status` is good.
  opdock_status hand_over(opdock_status status);

 private:
  opdock_status take_one(uint32_t i, bool may_lack, opdock_tensor** to);
  opdock_status refuse(uint32_t i, const std::string& text);
  void release();

  Invocation& in_;
  opdock_value* callers_;
  uint32_t count_;
  bool has_made_ = false;  // an allocation, a list or an object is ours
  opdock_tensor** tensors_ = few_;
  std::unique_ptr<opdock_tensor*[]> many_;
  opdock_tensor* few_[kMaxReturns];
  opdock_value own_[kMaxReturns];  // of run; filled in by allocate() and for_run()
  uint32_t made_ = 0;              // a bit a result: own_ holds what is ours
};

// opdock_value_free.
void free_value(opdock_value* value);

}  // namespace opdock
