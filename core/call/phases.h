// The phases of a call: what the host does around op->plan, op->prepare and op->run. The common
// path, a thread-safe and prepared op on the CPU, is inline; everything else is in phases.cc.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>

#include "call/call.h"
#include "call/invocation.h"

namespace opdock {

// Makes the stream's context current for a scope; does nothing on the CPU.
class Context {
 public:
  explicit Context(const Target& target) : target_(target) {}
  ~Context() {
    if (entered_) target_.driver->leave(previous_);
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  opdock_status enter(const opdock_function& function, void* stream, const ErrorBuffer& error) {
    return target_.driver == nullptr ? OPDOCK_OK : enter_gpu(function, stream, error);
  }

 private:
  opdock_status enter_gpu(const opdock_function& function, void* stream, const ErrorBuffer& error);

  const Target& target_;
  void* previous_ = nullptr;
  bool entered_ = false;
};

void clear_outputs(opdock_output* outputs, uint32_t count);
// Calls op->plan of an op that is not thread-safe.
opdock_status plan_serially(Invocation* in, const opdock_value* args, uint32_t num_args,
                            opdock_plan* plan);
// Checks whether the host may use what plan answered: it must be valid in itself, and in the first
// calls it must equal the result of the op's shape rules. Otherwise returns OPDOCK_INTERNAL and
// writes a text.
opdock_status check_plan(Invocation* in, const opdock_value* args, const opdock_plan& plan);
// Checks the op's rules about its tensors in full, for arguments that did not pass quickly.
opdock_status check_tensor_rules(Invocation* in, const opdock_value* args);

// Plans into *plan, whose struct_size is the host's and whose outputs have room for in->tensors.
[[gnu::always_inline]] inline opdock_status plan_once(Invocation* in, const opdock_value* args,
                                                      uint32_t num_args, opdock_plan* plan) {
  const uint32_t tensors = in->tensors;
  opdock_output* const outputs = plan->outputs;
  const TensorRules* const rules = in->target->tensor_rules.get();
  if (rules != nullptr && !rules->pass(args)) {
    const opdock_status checked = check_tensor_rules(in, args);
    if (checked != OPDOCK_OK) return checked;
  }
  plan->num_outputs = tensors;
  plan->workspace_bytes = 0;
  plan->workspace_alignment = 0;
  plan->random_numbers = 0;
  std::memset(plan->state, 0, sizeof plan->state);
  plan->flags = 0;
  plan->room = tensors;
  if (tensors != 0 && outputs != nullptr) clear_outputs(outputs, tensors);
  const opdock_status status =
      in->target->serial == nullptr
          ? in->finish(in->target->op->plan(&in->call, args, num_args, plan), "plan")
          : plan_serially(in, args, num_args, plan);
  if (status != OPDOCK_OK) [[unlikely]]
    return status;
  plan->num_outputs = tensors;
  plan->outputs = outputs;
  plan->flags = 0;
  plan->room = tensors;
  if ((tensors | plan->workspace_bytes | plan->workspace_alignment | plan->random_numbers) == 0) {
    return OPDOCK_OK;
  }
  return check_plan(in, args, *plan);
}

// Loads or compiles all kernels and prepares the op on the invocation's device, unless that has
// been done; afterwards nothing is left to compile or load. The caller has entered the context.
// Takes the op's lock.
opdock_status prepare_target(Invocation* in);

// Does everything that run may need: lock, capture check, random numbers, preparation, workspace.
opdock_status run_in_full(Invocation* in, const opdock_plan& plan, const opdock_value* args,
                          uint32_t num_args, opdock_value* results, uint32_t num_results);

// Handles the status that op->run returned. The context must still be current.
inline opdock_status ended(Invocation* in, opdock_status status) {
  status = in->finish(status, "run");
  if (in->extra != nullptr) [[unlikely]]
    in->release_extra();
  return status;
}

// Runs what was planned. The caller has entered the context and checked the results.
[[gnu::always_inline]] inline opdock_status run_once(Invocation* in, const opdock_plan& plan,
                                                     const opdock_value* args, uint32_t num_args,
                                                     opdock_value* results, uint32_t num_results) {
  in->phase = Phase::kRun;
  in->args = args;
  in->has_text = false;  // plan may have written an error's text and then succeeded
  in->call.state = plan.state;
  if (!in->target->runs_directly.load(std::memory_order_acquire) ||
      (plan.workspace_bytes | plan.random_numbers) != 0) {
    return run_in_full(in, plan, args, num_args, results, num_results);
  }
  in->call.stream = nullptr;
  return ended(in, in->target->op->run(&in->call, args, num_args, results, num_results));
}

}  // namespace opdock
