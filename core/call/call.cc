// SPDX-License-Identifier: Apache-2.0
#include "call/call.h"

#include <algorithm>
#include <cstring>

#include "call/dtype.h"
#include "call/invocation.h"
#include "call/workspace.h"

namespace opdock {
namespace {

template <class T, class M>
bool inside(const T* owner, const M* member) {
  return reinterpret_cast<const char*>(member) + sizeof(M) <=
         reinterpret_cast<const char*>(owner) + owner->struct_size;
}

CallOptions read_options(const opdock_call_options* from) {
  CallOptions options;
  if (from == nullptr) return options;
  if (inside(from, &from->flags)) options.flags = from->flags;
  if (inside(from, &from->stream)) options.stream = from->stream;
  if (inside(from, &from->generator)) options.generator = from->generator;
  if (inside(from, &from->workspace_bytes)) {
    options.workspace = from->workspace;
    options.workspace_bytes = from->workspace_bytes;
  }
  return options;
}

// The caller's plan, whatever the size of its declaration; the host's own size is what the op sees.
bool readable(const opdock_plan* plan) {
  return plan != nullptr && plan->struct_size >= sizeof(opdock_plan);
}

opdock_status refuse(const opdock_function& function, const ErrorBuffer& error,
                     const std::string& text, opdock_status status = OPDOCK_INVALID_ARGUMENT) {
  error.write(function.schema().name, ": ", text);
  return status;
}

// Locks an op that may not be called twice at once; costs a test for the others.
class Serial {
 public:
  explicit Serial(const Target& target) : mutex_(target.serial) {
    if (mutex_ != nullptr) mutex_->lock();
  }
  ~Serial() {
    if (mutex_ != nullptr) mutex_->unlock();
  }
  Serial(const Serial&) = delete;
  Serial& operator=(const Serial&) = delete;

 private:
  std::mutex* mutex_;
};

// Makes the stream's context current for a scope; nothing on the CPU.
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
  opdock_status enter_gpu(const opdock_function& function, void* stream, const ErrorBuffer& error) {
    DriverStatus done = target_.driver->enter(target_.device.index, stream, &previous_);
    if (!done.ok()) return refuse(function, error, done.text, done.status);
    entered_ = true;
    return OPDOCK_OK;
  }

  const Target& target_;
  void* previous_ = nullptr;
  bool entered_ = false;
};

bool plan_is_sound(const opdock_plan& plan) {
  return plan.num_outputs == 0 && plan.workspace_bytes == 0 && plan.workspace_alignment == 0
             ? true
             : plan_problem(plan).empty();
}

[[gnu::cold, gnu::noinline]] opdock_status refuse_plan(Invocation* in, const opdock_plan& plan) {
  return in->fail(OPDOCK_INTERNAL, "plan of plugin \"" + in->target->plugin + "\" answered " +
                                       plan_problem(plan) + "; report it to the plugin's author");
}

opdock_status plan_into(const opdock_function& function, Target* target, const CallOptions& options,
                        const opdock_value* args, uint32_t num_args, opdock_plan* plan,
                        const ErrorBuffer& error) {
  plan->num_outputs = function.fresh();
  plan->workspace_bytes = 0;
  plan->workspace_alignment = 0;
  plan->random_numbers = 0;
  std::memset(plan->state, 0, sizeof plan->state);
  if (plan->num_outputs != 0) {
    std::memset(plan->outputs, 0, plan->num_outputs * sizeof *plan->outputs);
  }
  opdock_output* outputs = plan->outputs;
  Invocation in(function.schema().name, target, options.flags, options.stream, Phase::kPlan, error);
  in.call.generator = options.generator;
  opdock_status status;
  {
    Serial serial(*target);
    status = target->op->plan(&in.call, args, num_args, plan);
  }
  if (status != OPDOCK_OK) [[unlikely]]
    return in.finish(status, "plan");
  plan->num_outputs = function.fresh();
  plan->outputs = outputs;
  return plan_is_sound(*plan) ? OPDOCK_OK : refuse_plan(&in, *plan);
}

// The serial lock is held and the context entered.
opdock_status prepare_once(Invocation* in) {
  Target* target = in->target;
  std::lock_guard lock(target->preparing);
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

// The context is entered.
opdock_status run_on(const opdock_function& function, Target* target, const CallOptions& options,
                     const opdock_plan& plan, const opdock_value* args, uint32_t num_args,
                     opdock_tensor* const* outputs, uint32_t num_outputs,
                     const ErrorBuffer& error) {
  Invocation in(function.schema().name, target, options.flags, options.stream, Phase::kRun, error);
  in.call.state = plan.state;
  in.call.generator = options.generator;
  if (plan.random_numbers != 0 && options.generator == nullptr) {
    return in.fail(OPDOCK_INVALID_ARGUMENT,
                   "found no generator, wanted one, as the op draws random numbers; pass "
                   "options.generator");
  }
  Serial serial(*target);
  opdock_status status = OPDOCK_OK;
  if (target->driver != nullptr) {
    status = check_capture(&in);
    if (status != OPDOCK_OK) return status;
  } else {
    in.call.flags &= ~OPDOCK_CALL_CAPTURING;
    in.call.stream = nullptr;
  }
  if (!target->prepared.load(std::memory_order_acquire)) [[unlikely]] {
    status = prepare_once(&in);
    if (status != OPDOCK_OK) return status;
  }
  Workspace workspace(&in);
  if (plan.workspace_bytes != 0) {
    status = workspace.acquire(plan.workspace_bytes, plan.workspace_alignment, options.workspace,
                               options.workspace_bytes);
    if (status != OPDOCK_OK) return status;
  }
  status = in.finish(target->op->run(&in.call, args, num_args, outputs, num_outputs), "run");
  if (!in.extra.empty()) in.release_extra();  // while the context is current
  return status;
}

}  // namespace

opdock_status plan_call(const opdock_function& function, const opdock_call_options* options,
                        const opdock_value* args, uint32_t num_args, opdock_plan* plan,
                        const ErrorBuffer& error) {
  if (!readable(plan) || (plan->outputs == nullptr && function.fresh() != 0)) {
    return refuse(function, error,
                  "found a plan without room, wanted struct_size of at least " +
                      std::to_string(sizeof *plan) + " and outputs for " +
                      std::to_string(function.fresh()) + "; fill in struct_size and outputs");
  }
  opdock_status status = OPDOCK_OK;
  Target* target = check_arguments(function, args, num_args, true, &status, error);
  if (target == nullptr) return status;
  if (plan->struct_size == sizeof *plan) [[likely]] {
    return plan_into(function, target, read_options(options), args, num_args, plan, error);
  }
  opdock_plan own;  // the caller's is larger: it must not look to the op as if the host knew it all
  std::memcpy(&own, plan, sizeof own);
  own.struct_size = sizeof own;
  status = plan_into(function, target, read_options(options), args, num_args, &own, error);
  own.struct_size = plan->struct_size;
  std::memcpy(plan, &own, sizeof own);
  return status;
}

opdock_status run_planned(const opdock_function& function, const opdock_call_options* options,
                          const opdock_plan* plan, const opdock_value* args, uint32_t num_args,
                          opdock_tensor* const* outputs, uint32_t num_outputs,
                          const ErrorBuffer& error) {
  if (!readable(plan) || plan->num_outputs != function.fresh() ||
      (plan->outputs == nullptr && plan->num_outputs != 0)) {
    return refuse(
        function, error,
        "found a plan that opdock_plan_call did not fill in for this function, wanted one; "
        "plan first");
  }
  opdock_status status = OPDOCK_OK;
  Target* target = recheck_arguments(function, args, num_args, &status, error);
  if (target == nullptr) return status;
  status = check_outputs(function, *target, *plan, args, outputs, num_outputs, error);
  if (status != OPDOCK_OK) return status;
  const CallOptions how = read_options(options);
  Context context(*target);
  status = context.enter(function, how.stream, error);
  if (status != OPDOCK_OK) return status;
  return run_on(function, target, how, *plan, args, num_args, outputs, num_outputs, error);
}

opdock_status invoke(const opdock_function& function, const opdock_call_options* options,
                     const opdock_value* args, uint32_t num_args, opdock_tensor** outputs,
                     uint32_t num_outputs, const ErrorBuffer& error) {
  opdock_output planned[kMaxReturns];
  opdock_plan plan;
  plan.struct_size = sizeof plan;
  plan.outputs = planned;
  opdock_status status = OPDOCK_OK;
  Target* target = check_arguments(function, args, num_args, false, &status, error);
  if (target == nullptr) return status;
  const CallOptions how = read_options(options);
  status = plan_into(function, target, how, args, num_args, &plan, error);
  if (status != OPDOCK_OK) return status;
  if (num_outputs != plan.num_outputs || (outputs == nullptr && num_outputs != 0)) {
    return refuse(function, error,
                  "found " + std::to_string(num_outputs) + " outputs, wanted " +
                      std::to_string(plan.num_outputs) + ", one per fresh result of the schema");
  }
  Context context(*target);
  status = context.enter(function, how.stream, error);
  uint32_t made = 0;  // a bit an output
  static_assert(kMaxReturns <= 32);
  for (uint32_t i = 0; i < num_outputs && status == OPDOCK_OK; ++i) {
    if (outputs[i] != nullptr) continue;
    std::string problem;
    status = allocate_output(*target, how.stream, planned[i], &outputs[i], &problem);
    if (status == OPDOCK_OK) {
      made |= 1u << i;
    } else {
      refuse(function, error, "output " + std::to_string(i) + ": " + problem, status);
    }
  }
  if (status == OPDOCK_OK) {
    status = check_outputs(function, *target, plan, args, outputs, num_outputs, error);
  }
  if (status == OPDOCK_OK) {
    status = run_on(function, target, how, plan, args, num_args, outputs, num_outputs, error);
  }
  for (uint32_t i = 0; status != OPDOCK_OK && i < num_outputs; ++i) {
    if ((made >> i & 1) == 0) continue;
    free_output(outputs[i]);
    outputs[i] = nullptr;
  }
  return status;
}

opdock_status prepare(const opdock_function& function, opdock_device device,
                      const ErrorBuffer& error) {
  opdock_status status = OPDOCK_OK;
  Target* target = function.target(device, &status, error);
  if (target == nullptr) return status;
  Invocation in(function.schema().name, target, 0, nullptr, Phase::kPrepare, error);
  Serial serial(*target);
  Context context(*target);
  status = context.enter(function, nullptr, error);
  return status == OPDOCK_OK ? prepare_once(&in) : status;
}

}  // namespace opdock
