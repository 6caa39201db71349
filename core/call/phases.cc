// SPDX-License-Identifier: Apache-2.0
#include "call/phases.h"

#include <algorithm>

#include "base/fork_aware_lock.h"
#include "call/random.h"
#include "call/tensor_check.h"
#include "call/workspace.h"
#include "opdock/types.hpp"
#include "schema/dtype.h"

namespace opdock {
namespace {

// Holds a lock of an op for a scope. A NULL lock means that none is needed, which costs one test.
class OpLock {
 public:
  explicit OpLock(ForkAwareLock* lock) : lock_(lock) {}
  ~OpLock() {
    if (taken_) lock_->unlock();
  }
  OpLock(const OpLock&) = delete;
  OpLock& operator=(const OpLock&) = delete;

  opdock_status lock(Invocation* in) {
    if (lock_ == nullptr) return OPDOCK_OK;
    if (lock_->try_lock()) {
      taken_ = true;
      return OPDOCK_OK;
    }
    return wait(in);
  }

 private:
  // Waits for the lock. Its holder may be compiling, and may need a lock that this thread holds
  // (Python's GIL, for a hook of the program), so the resolver releases that lock while this thread
  // waits.
  opdock_status wait(Invocation* in) {
    in->function.resolver()->waiting(true);
    const ForkAwareLock::Acquire took = lock_->lock();
    in->function.resolver()->waiting(false);
    taken_ = took == ForkAwareLock::Acquire::kAcquired;
    if (taken_) return OPDOCK_OK;
    if (took == ForkAwareLock::Acquire::kDeadlock) {
      return in->fail(OPDOCK_INVALID_ARGUMENT,
                      to_text(deadlock_reason("the call of this op on " +
                                              to_text(in->target->device) + " to end")));
    }
    lock_->unlock_poisoned();  // the op's data may be half written
    return in->fail(
        OPDOCK_UNSUPPORTED,
        to_text(poisoned_reason("nobody in this op, which takes one thread at a time")));
  }

  ForkAwareLock* const lock_;
  bool taken_ = false;
};

// The caller holds the serial lock and has entered the context.
opdock_status prepare_once(Invocation* in) {
  Target* target = in->target;
  OpLock lock(&target->preparing);
  const opdock_status taken = lock.lock(in);
  if (taken != OPDOCK_OK) return taken;
  if (target->prepared.load(std::memory_order_relaxed)) return OPDOCK_OK;
  if (target->op->prepare != nullptr) {
    bool is_capturing = false;
    const opdock_status asked = in->is_capturing(&is_capturing);
    if (asked != OPDOCK_OK) return asked;
    if (is_capturing) {
      return in->fail(
          OPDOCK_UNSUPPORTED,
          "found the stream being captured and the op not prepared on " + to_text(target->device) +
              ", wanted it prepared; call it once, or opdock_prepare, before the capture");
    }
    Phase phase = in->phase;
    in->phase = Phase::kPrepare;
    opdock_status status = in->finish(target->op->prepare(&in->call), "prepare");
    in->phase = phase;
    if (status != OPDOCK_OK) return status;
  }
  target->prepared.store(true, std::memory_order_release);
  if (target->driver == nullptr && target->serial == nullptr) {
    target->runs_directly.store(true, std::memory_order_release);
  }
  return OPDOCK_OK;
}

// Refuses the call if the stream is being captured; for ops that are not capture-safe.
opdock_status refuse_capture(Invocation* in) {
  bool is_capturing = false;
  const opdock_status status = in->is_capturing(&is_capturing);
  if (status != OPDOCK_OK || !is_capturing) return status;
  return in->fail(OPDOCK_UNSUPPORTED,
                  "found the stream being captured, wanted an op with the flag "
                  "capture-safe; call it outside the capture");
}

std::string text_of(const opdock_output& output) {
  return to_text(output.dtype) + " " + shape_text(output.ndim, output.shape);
}

bool same_output(const opdock_output& a, const opdock_output& b) {
  return same(a.dtype, b.dtype) && a.ndim == b.ndim &&
         std::equal(a.shape, a.shape + a.ndim, b.shape);
}

// Compares plan's outputs with the op's shape rules.
opdock_status check_rules(Invocation* in, const opdock_value* args, const opdock_plan& plan) {
  const Schema& schema = in->function.schema();
  uint32_t output = 0;
  size_t rule = 0;
  for (uint32_t i = 0; i < in->function.num_results(); ++i) {
    if (!schema.returns[i].is_fresh_tensor()) continue;
    const ShapeRule& wanted = in->target->rules[rule++];
    for (uint32_t k = 0; k < in->tensors_of(i); ++k, ++output) {
      opdock_output ruled;
      std::string problem;
      const bool is_ruled =
          evaluate(wanted, schema, {args, in->function.num_params()}, k, &ruled, &problem);
      if (is_ruled && same_output(ruled, plan.outputs[output])) continue;
      return in->fail(OPDOCK_INTERNAL, "plan of plugin \"" + in->target->plugin + "\" answered " +
                                           text_of(plan.outputs[output]) + " for output " +
                                           std::to_string(output) + ", wanted " +
                                           (is_ruled ? text_of(ruled) : problem) +
                                           ", by its shape rule \"" + wanted.view().text +
                                           "\" (OPDOCK-P-10); report it to the plugin's author");
    }
  }
  return OPDOCK_OK;
}

}  // namespace

opdock_status Context::enter_gpu(const opdock_function& function, void* stream,
                                 const ErrorBuffer& error) {
  Status done = target_.driver->enter(target_.device.index, stream, &previous_);
  if (!done.ok()) {
    error.write(function.schema().name, ": ", done.text);
    return done.status;
  }
  entered_ = true;
  return OPDOCK_OK;
}

void clear_outputs(opdock_output* outputs, uint32_t count) {
  std::memset(outputs, 0, count * sizeof *outputs);
}

opdock_status plan_serially(Invocation* in, const opdock_value* args, uint32_t num_args,
                            opdock_plan* plan) {
  OpLock lock(in->target->serial);
  const opdock_status taken = lock.lock(in);
  if (taken != OPDOCK_OK) return taken;
  return in->finish(in->target->op->plan(&in->call, args, num_args, plan), "plan");
}

opdock_status check_plan(Invocation* in, const opdock_value* args, const opdock_plan& plan) {
  std::string problem = plan_problem(plan);
  if (problem.empty() && plan.random_numbers != 0 && !in->target->has_flag(OPDOCK_OP_RANDOM)) {
    problem = std::to_string(plan.random_numbers) +
              " random numbers, wanted none of an op without the flag random";
  }
  if (!problem.empty()) {
    return in->fail(OPDOCK_INTERNAL, "plan of plugin \"" + in->target->plugin + "\" answered " +
                                         problem + "; report it to the plugin's author");
  }
  std::atomic<uint32_t>& to_check = in->target->plans_to_check;
  uint32_t left = to_check.load(std::memory_order_relaxed);
  if (left == 0) [[likely]]
    return OPDOCK_OK;
  // UINT32_MAX means that every plan is checked. If two threads decrement at once, one of the
  // decrements may be lost.
  if (left != UINT32_MAX) {
    to_check.compare_exchange_strong(left, left - 1, std::memory_order_relaxed);
  }
  return check_rules(in, args, plan);
}

opdock_status check_tensor_rules(Invocation* in, const opdock_value* args) {
  try {
    in->target->tensor_rules->check(args);
    return OPDOCK_OK;
  } catch (const Error& broken) {
    return in->fail(broken.status(), broken.what());
  }
}

opdock_status prepare_target(Invocation* in) {
  if (in->target->kernels != nullptr) {
    // Kernels come first, so that the op's own prepare finds the ones it asks for.
    Status made = in->target->kernels->load();
    if (made.ok()) {
      made = in->function.resolver()->make_kernels(in->function, in->target, nullptr);
    }
    if (!made.ok()) return in->fail(made.status, made.text);
  }
  OpLock lock(in->target->serial);
  const opdock_status taken = lock.lock(in);
  return taken == OPDOCK_OK ? prepare_once(in) : taken;
}

opdock_status run_in_full(Invocation* in, const opdock_plan& plan, const opdock_value* args,
                          uint32_t num_args, opdock_value* results, uint32_t num_results) {
  Target* target = in->target;
  OpLock lock(target->serial);
  opdock_status status = lock.lock(in);
  if (status != OPDOCK_OK) return status;
  if (target->driver == nullptr) {
    in->call.stream = nullptr;
  } else if (!target->has_flag(OPDOCK_OP_CAPTURE_SAFE)) {
    status = refuse_capture(in);
    if (status != OPDOCK_OK) return status;
  }
  if (plan.random_numbers != 0) {
    status = take_random_numbers(in, args, plan.random_numbers);
    if (status != OPDOCK_OK) return status;
  }
  if (!target->prepared.load(std::memory_order_acquire)) {
    status = prepare_once(in);
    if (status != OPDOCK_OK) return status;
  }
  Workspace workspace(in);
  if (plan.workspace_bytes != 0) {
    status = workspace.acquire(plan.workspace_bytes, plan.workspace_alignment, in->how.workspace,
                               in->how.workspace_bytes);
    if (status != OPDOCK_OK) return status;
  }
  return ended(in, target->op->run(&in->call, args, num_args, results, num_results));
}

}  // namespace opdock
