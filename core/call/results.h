// The results of one call: the values that the caller passes in and gets back, the fresh tensors
// among them, and the values that the op's run sees.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "call/invocation.h"

namespace opdock {

// Lives on the calling thread's stack from plan to the end of run. Its destructor releases whatever
// it has made and not handed over.
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

  // Splits the caller's values into tensors and checks them against the plan. may_lack: the host
  // allocates the values that are OPDOCK_TAG_NONE.
  opdock_status take(const opdock_plan& plan, bool may_lack, const ErrorBuffer& error);
  // The fresh tensors of all results, in the order of opdock_plan.outputs; NULL if not yet
  // allocated.
  opdock_tensor* const* tensors() const { return tensors_; }

  // Allocates the missing tensors. The caller has entered the context.
  opdock_status allocate(const opdock_plan& plan, const ErrorBuffer& error);
  // Returns the values that run gets.
  opdock_value* for_run(const opdock_value* args);
  // After run: checks the values that run has set, and gives all results to the caller if `status`
  // is OPDOCK_OK.
  opdock_status hand_over(opdock_status status);

 private:
  opdock_status take_one(uint32_t i, bool may_lack, opdock_tensor** to);
  opdock_status check_rules(const TensorRules& rules);
  opdock_status refuse(uint32_t i, const std::string& text);
  void release();

  Invocation& in_;
  opdock_value* callers_;
  uint32_t count_;
  bool has_made_ = false;  // this object still owns an allocation, a list or an object
  opdock_tensor** tensors_ = few_;
  std::unique_ptr<opdock_tensor*[]> many_;
  opdock_tensor* few_[kMaxReturns];
  opdock_value own_[kMaxReturns];  // the values for run; filled in by allocate() and for_run()
  uint32_t made_ = 0;              // bit i: this object owns the value in own_[i]
};

// Implements opdock_value_free.
void free_value(opdock_value* value);

}  // namespace opdock
