// SPDX-License-Identifier: Apache-2.0
#include "call/phases.h"

#include "base/turn.h"
#include "call/dtype.h"
#include "call/workspace.h"

namespace opdock {
namespace {

// A turn of an op for a scope; NULL: none is needed, which costs a test.
class OpTurn {
 public:
  explicit OpTurn(Turn* turn) : turn_(turn) {}
  ~OpTurn() {
    if (taken_) turn_->give_back();
  }
  OpTurn(const OpTurn&) = delete;
  OpTurn& operator=(const OpTurn&) = delete;

  opdock_status take(Invocation* in) {
    if (turn_ == nullptr) return OPDOCK_OK;
    if (turn_->try_take()) {
      taken_ = true;
      return OPDOCK_OK;
    }
    return wait(in);
  }

 private:
  // Who is at work may be compiling, and may need what this thread holds (Python's GIL, for a hook
  // of the program): it is given up while waiting.
  opdock_status wait(Invocation* in) {
    in->function.resolver()->waiting(true);
    const Turn::Took took = turn_->take();
    in->function.resolver()->waiting(false);
    taken_ = took == Turn::Took::kFree;
    if (taken_) return OPDOCK_OK;
    if (took == Turn::Took::kItself) {
      return in->fail(OPDOCK_INVALID_ARGUMENT,
                      to_text(within_itself("the call of this op on " +
                                            to_text(in->target->device) + " to end")));
    }
    turn_->give_back_as_left();  // what the op was writing is half written
    return in->fail(OPDOCK_UNSUPPORTED,
                    to_text(left_by_fork("nobody in this op, which takes one thread at a time")));
  }

  Turn* const turn_;
  bool taken_ = false;
};

// The serial turn is taken and the context entered.
opdock_status prepare_once(Invocation* in) {
  Target* target = in->target;
  OpTurn turn(&target->preparing);
  const opdock_status taken = turn.take(in);
  if (taken != OPDOCK_OK) return taken;
  if (target->prepared.load(std::memory_order_relaxed)) return OPDOCK_OK;
  if (target->op->prepare != nullptr) {
    if ((in->call.flags & OPDOCK_CALL_CAPTURING) != 0) {
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

opdock_status check_capture(Invocation* in) {
  Target* target = in->target;
  bool capturing = false;
  DriverStatus done = target->driver->is_capturing(in->call.stream, &capturing);
  if (!done.ok()) return in->fail(done.status, done.text);
  if (!capturing) {
    in->call.flags &= ~OPDOCK_CALL_CAPTURING;
    return OPDOCK_OK;
  }
  in->call.flags |= OPDOCK_CALL_CAPTURING;
  if (target->has_flag(OPDOCK_OP_CAPTURE_SAFE)) return OPDOCK_OK;
  return in->fail(OPDOCK_UNSUPPORTED,
                  "found the stream being captured, wanted an op with the flag "
                  "capture-safe; call it outside the capture");
}

}  // namespace

opdock_status Context::enter_gpu(const opdock_function& function, void* stream,
                                 const ErrorBuffer& error) {
  DriverStatus done = target_.driver->enter(target_.device.index, stream, &previous_);
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
  OpTurn turn(in->target->serial);
  const opdock_status taken = turn.take(in);
  if (taken != OPDOCK_OK) return taken;
  return in->finish(in->target->op->plan(&in->call, args, num_args, plan), "plan");
}

opdock_status judge_plan(Invocation* in, const opdock_plan& plan) {
  const std::string problem = plan_problem(plan);
  if (problem.empty()) return OPDOCK_OK;
  return in->fail(OPDOCK_INTERNAL, "plan of plugin \"" + in->target->plugin + "\" answered " +
                                       problem + "; report it to the plugin's author");
}

opdock_status prepare_target(Invocation* in) {
  if (in->target->kernels != nullptr) {
    // First of all, so that the op's own prepare finds what it asks for.
    std::string problem;
    opdock_status status = in->target->kernels->load(&problem);
    if (status == OPDOCK_OK) {
      status = in->function.resolver()->make_kernels(in->function, in->target, nullptr, &problem);
    }
    if (status != OPDOCK_OK) return in->fail(status, problem);
  }
  OpTurn turn(in->target->serial);
  const opdock_status taken = turn.take(in);
  return taken == OPDOCK_OK ? prepare_once(in) : taken;
}

opdock_status run_in_full(Invocation* in, const opdock_call_options& how, const opdock_plan& plan,
                          const opdock_value* args, uint32_t num_args,
                          opdock_tensor* const* outputs, uint32_t num_outputs) {
  Target* target = in->target;
  if (plan.random_numbers != 0 && in->call.generator == nullptr) {
    return in->fail(OPDOCK_INVALID_ARGUMENT,
                    "found no generator, wanted one, as the op draws random numbers; pass "
                    "options.generator");
  }
  OpTurn turn(target->serial);
  opdock_status status = turn.take(in);
  if (status != OPDOCK_OK) return status;
  if (target->driver != nullptr) {
    status = check_capture(in);
    if (status != OPDOCK_OK) return status;
  } else {
    in->call.flags &= ~OPDOCK_CALL_CAPTURING;
    in->call.stream = nullptr;
  }
  if (!target->prepared.load(std::memory_order_acquire)) {
    status = prepare_once(in);
    if (status != OPDOCK_OK) return status;
  }
  Workspace workspace(in);
  if (plan.workspace_bytes != 0) {
    status = workspace.acquire(plan.workspace_bytes, plan.workspace_alignment, how.workspace,
                               how.workspace_bytes);
    if (status != OPDOCK_OK) return status;
  }
  return ended(in, target->op->run(&in->call, args, num_args, outputs, num_outputs));
}

}  // namespace opdock
