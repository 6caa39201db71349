// The functions of opdock.h that call an op.
// SPDX-License-Identifier: Apache-2.0
#include "call/call.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>

#include "base/guarded.h"
#include "call/accept.h"
#include "call/phases.h"
#include "call/results.h"
#include "call/tensor_arguments.h"

namespace opdock {
namespace {

template <class T, class M>
bool has_room_for(const T* owner, const M* member) {
  return reinterpret_cast<const char*>(member) + sizeof(M) <=
         reinterpret_cast<const char*>(owner) + owner->struct_size;
}

constexpr opdock_call_options kNoOptions{sizeof kNoOptions, 0,       nullptr, nullptr, nullptr, 0,
                                         nullptr,           nullptr, nullptr};

[[gnu::cold, gnu::noinline]] void read_short_options(const opdock_call_options* from,
                                                     opdock_call_options* to) {
  *to = kNoOptions;
  if (has_room_for(from, &from->flags)) to->flags = from->flags;
  if (has_room_for(from, &from->stream)) to->stream = from->stream;
  if (has_room_for(from, &from->generator)) to->generator = from->generator;
  if (has_room_for(from, &from->workspace_bytes)) {
    to->workspace = from->workspace;
    to->workspace_bytes = from->workspace_bytes;
  }
  if (has_room_for(from, &from->keeper)) to->keeper = from->keeper;
  if (has_room_for(from, &from->allows_tf32)) to->allows_tf32 = from->allows_tf32;
  if (has_room_for(from, &from->wants_deterministic))
    to->wants_deterministic = from->wants_deterministic;
}

// Returns the caller's options. Options with a smaller struct_size are completed in `room`.
inline const opdock_call_options& read_options(const opdock_call_options* from,
                                               opdock_call_options* room) {
  if (from == nullptr) return kNoOptions;
  if (from->struct_size >= sizeof *from) [[likely]]
    return *from;
  read_short_options(from, room);
  return *room;
}

// The smallest struct_size accepted for a caller's plan: that of the first draft of the interface.
constexpr size_t kMinPlan = offsetof(opdock_plan, state) + sizeof(opdock_plan::state);

bool readable(const opdock_plan* plan) {
  return plan != nullptr && plan->struct_size >= kMinPlan;
}

// Copies a caller's plan of another size into one of the host's size, because the op must see every
// member that the host knows.
opdock_plan of_own_size(const opdock_plan& from) {
  opdock_plan own{};
  std::memcpy(&own, &from, std::min<size_t>(from.struct_size, sizeof own));
  own.struct_size = sizeof own;
  // A plan without the member `flags` may have been made over shapes without data.
  if (!OPDOCK_HAS(&from, opdock_plan, flags)) own.flags = OPDOCK_PLAN_OF_SHAPES;
  return own;
}

[[gnu::cold, gnu::noinline]] opdock_status refuse(const opdock_function& function,
                                                  const ErrorBuffer& error, const std::string& text,
                                                  opdock_status status = OPDOCK_INVALID_ARGUMENT) {
  error.write(function.schema().name, ": ", text);
  return status;
}

// Room for the outputs that an op's plan function fills in: on the stack, unless lists need more.
class PlannedOutputs {
 public:
  opdock_output* for_tensors(uint32_t count) {
    if (count <= kMaxReturns) return few_;
    many_ = std::make_unique<opdock_output[]>(count);
    return many_.get();
  }

 private:
  opdock_output few_[kMaxReturns];
  std::unique_ptr<opdock_output[]> many_;
};

// Plans, checks and runs. may_lack: results may be OPDOCK_TAG_NONE and are allocated then.
[[gnu::noinline]] opdock_status invoke_in_full(Invocation* in, const opdock_value* args,
                                               uint32_t num_args, opdock_value* results,
                                               uint32_t num_results, bool may_lack,
                                               const ErrorBuffer& error) {
  const opdock_function& function = in->function;
  const Target& target = *in->target;
  opdock_status status = OPDOCK_OK;
  if (function.is_variable()) status = count_results(in, args);
  if (status != OPDOCK_OK) return status;
  PlannedOutputs planned;
  opdock_plan plan;
  plan.struct_size = sizeof plan;
  plan.outputs = planned.for_tensors(in->tensors);
  status = plan_once(in, args, num_args, &plan);
  if (status != OPDOCK_OK) return status;
  ResultSet set(in, results, num_results);
  status = set.take(plan, may_lack, error);
  if (status != OPDOCK_OK) return status;
  if (in->tensors != 0 || function.writes()) {
    status = check_sharing(function, target, args, set.tensors(), in->tensors, error);
    if (status != OPDOCK_OK) return status;
  }
  Context context(target);
  status = context.enter(function, in->how.stream, error);
  if (status == OPDOCK_OK && may_lack) status = set.allocate(plan, error);
  if (status != OPDOCK_OK) return status;
  return set.hand_over(run_once(in, plan, args, num_args, set.for_run(args), num_results));
}

[[gnu::cold, gnu::noinline]] opdock_status refuse_room(const opdock_function& function,
                                                       uint32_t tensors, const ErrorBuffer& error) {
  return refuse(function, error,
                "found a plan without room, wanted struct_size of at least " +
                    std::to_string(kMinPlan) + ", outputs, and room for " +
                    std::to_string(tensors) + "; fill in struct_size, outputs and room");
}

[[gnu::cold, gnu::noinline]] opdock_status refuse_unplanned(const opdock_function& function,
                                                            const ErrorBuffer& error) {
  return refuse(function, error,
                "found a plan that opdock_plan_call did not fill in for this function, wanted one; "
                "plan first");
}

// After a failure on `target`: retries with the chain's next provider, as long as the call fails
// because a kernel cannot be compiled. call(&target) makes the call again and sets the target that
// it used.
template <class Call>
[[gnu::cold, gnu::noinline]] opdock_status retry_with_next_provider(const opdock_function& function,
                                                                    Target* target,
                                                                    opdock_status status,
                                                                    const Call& call) {
  struct End {
    Resolver* resolver;
    ~End() { resolver->end_of_call(); }
  } const end{function.resolver()};
  // Each pass gives up one provider. The limit is needed because other threads may bring providers
  // back.
  for (int turn = 0; turn < 8; ++turn) {
    if (status != OPDOCK_INCOMPATIBLE || target == nullptr) break;
    if (!function.resolver()->give_up(function, target)) break;
    target = nullptr;
    status = call(&target);
  }
  return status;
}

// Tries the quick check first; arguments that it does not accept are checked in full.
inline Target* accept_or_check(const opdock_function& function, const opdock_value* args,
                               uint32_t num_args, bool planning, opdock_status* status,
                               const ErrorBuffer& error) {
  Target* target = accept_arguments(function, args, num_args);
  if (target != nullptr) [[likely]]
    return target;
  return check_arguments(function, args, num_args, planning, status, error);
}

[[gnu::noinline]] opdock_status plan_of_other_size(Invocation* in, const opdock_value* args,
                                                   uint32_t num_args, opdock_plan* plan) {
  opdock_plan own = of_own_size(*plan);
  const opdock_status status = plan_once(in, args, num_args, &own);
  own.struct_size = plan->struct_size;
  std::memcpy(plan, &own, std::min<size_t>(plan->struct_size, sizeof own));
  return status;
}

// Sets OPDOCK_PLAN_OF_SHAPES in the plan if an argument had no data.
[[gnu::noinline]] void mark_shapes(const opdock_function& function, const opdock_value* args,
                                   opdock_plan* plan) {
  if (!OPDOCK_HAS(plan, opdock_plan, flags)) return;
  const bool real = each_tensor(function, args, [](ArgumentPlace, const opdock_value& value) {
    return (value.flags & OPDOCK_VALUE_NO_DATA) == 0;
  });
  if (!real) plan->flags |= OPDOCK_PLAN_OF_SHAPES;
}

// Makes the whole call on the provider that serves it now, and sets *on to that target.
opdock_status invoke_anew(const opdock_function& function, const opdock_call_options& how,
                          const opdock_value* args, uint32_t num_args, opdock_value* results,
                          uint32_t num_results, bool may_lack, Target** on,
                          const ErrorBuffer& error) {
  opdock_status status = OPDOCK_OK;
  Target* target = *on = accept_or_check(function, args, num_args, false, &status, error);
  if (target == nullptr) return status;
  Invocation in(function, target, how, Phase::kPlan, error);
  return invoke_in_full(&in, args, num_args, results, num_results, may_lack, error);
}

// Returns the options without the caller's workspace, whose size comes from another provider's
// plan.
opdock_call_options with_hosts_workspace(opdock_call_options options) {
  options.workspace = nullptr;
  return options;
}

// Checks that the plan has room for every result tensor; the error says how many there are. A
// program whose plan has no member `room` is trusted to have enough if the schema fixes their
// number.
opdock_status check_room(Invocation* in, const opdock_value* args, opdock_plan* plan,
                         const ErrorBuffer& error) {
  const opdock_function& function = in->function;
  if (function.is_variable()) {
    const opdock_status status = count_results(in, args);
    if (status != OPDOCK_OK) return status;
  }
  const uint32_t room = OPDOCK_HAS(plan, opdock_plan, room) ? plan->room
                        : function.is_variable()            ? 0
                                                            : function.fresh();
  if (in->tensors == 0 || (room >= in->tensors && plan->outputs != nullptr)) return OPDOCK_OK;
  plan->num_outputs = in->tensors;
  return refuse_room(function, in->tensors, error);
}

}  // namespace
}  // namespace opdock

using namespace opdock;

extern "C" {

opdock_status opdock_prepare(opdock_function* function, opdock_device device, char* error_text,
                             uint32_t error_size) {
  const ErrorBuffer error{error_text, error_size};
  if (function == nullptr) return missing(error, "a function");
  return guarded(error, [&] {
    const auto prepare = [&](Target** on) {
      opdock_status status = OPDOCK_OK;
      Target* target = *on = function->target(device, &status, error);
      if (target == nullptr) return status;
      Invocation in(*function, target, kNoOptions, Phase::kPrepare, error);
      Context context(*target);
      status = context.enter(*function, nullptr, error);
      return status == OPDOCK_OK ? prepare_target(&in) : status;
    };
    Target* target = nullptr;
    const opdock_status status = prepare(&target);
    return status == OPDOCK_OK ? status
                               : retry_with_next_provider(*function, target, status, prepare);
  });
}

// These functions have their own try block, because the body of a lambda for guarded() would not be
// optimised together with them. They are gnu::hot because g++ otherwise optimises functions that
// branch to cold ones for size rather than speed, and clears a plan with `rep stos`, which takes
// longer than everything else they do.
[[gnu::hot]] opdock_status opdock_plan_call(opdock_function* function,
                                            const opdock_call_options* options,
                                            const opdock_value* args, uint32_t num_args,
                                            opdock_plan* plan, char* error_text,
                                            uint32_t error_size) {
  const ErrorBuffer error{error_text, error_size};
  if (function == nullptr) return missing(error, "a function");
  try {
    if (!readable(plan)) return refuse_room(*function, function->fresh(), error);
    opdock_status status = OPDOCK_OK;
    Target* target = accept_arguments(*function, args, num_args);
    const bool quick = target != nullptr;
    if (!quick) target = check_arguments(*function, args, num_args, true, &status, error);
    if (target == nullptr) return status;
    opdock_call_options room;
    Invocation in(*function, target, read_options(options, &room), Phase::kPlan, error);
    if (function->fresh() != 0) {
      status = check_room(&in, args, plan, error);
      if (status != OPDOCK_OK) return status;
    }
    status = plan->struct_size == sizeof *plan ? plan_once(&in, args, num_args, plan)
                                               : plan_of_other_size(&in, args, num_args, plan);
    if (!quick && status == OPDOCK_OK) mark_shapes(*function, args, plan);
    return status;
  } catch (...) {
    return status_of_exception(error);
  }
}

[[gnu::hot]] opdock_status opdock_run_planned(opdock_function* function,
                                              const opdock_call_options* options,
                                              const opdock_plan* plan, const opdock_value* args,
                                              uint32_t num_args, opdock_value* results,
                                              uint32_t num_results, char* error_text,
                                              uint32_t error_size) {
  const ErrorBuffer error{error_text, error_size};
  if (function == nullptr) return missing(error, "a function");
  try {
    if (!readable(plan) || (plan->outputs == nullptr && plan->num_outputs != 0)) {
      return refuse_unplanned(*function, error);
    }
    opdock_plan own;
    if (plan->struct_size < sizeof *plan) [[unlikely]] {
      own = of_own_size(*plan);
      plan = &own;
    }
    opdock_call_options room;
    const opdock_call_options& how = read_options(options, &room);
    opdock_status status = OPDOCK_OK;
    Target* target = nullptr;
    if ((plan->flags & OPDOCK_PLAN_OF_SHAPES) != 0) [[unlikely]] {
      // The op has not seen the data's addresses yet, so it must plan again.
      status =
          invoke_anew(*function, how, args, num_args, results, num_results, false, &target, error);
    } else {
      target = recheck_arguments(*function, args, num_args, &status, error);
      if (target == nullptr) return status;
      Invocation in(*function, target, how, Phase::kRun, error);
      if (function->is_variable()) {
        status = count_results(&in, args);
        if (status != OPDOCK_OK) return status;
      }
      ResultSet set(&in, results, num_results);
      if ((function->num_results() | num_results | plan->num_outputs | in.tensors |
           uint32_t{function->writes()}) != 0) {
        status = set.take(*plan, false, error);
        if (status != OPDOCK_OK) return status;
        status = check_sharing(*function, *target, args, set.tensors(), in.tensors, error);
        if (status != OPDOCK_OK) return status;
      }
      Context context(*target);
      status = context.enter(*function, how.stream, error);
      if (status != OPDOCK_OK) return status;
      status = set.hand_over(run_once(&in, *plan, args, num_args, set.for_run(args), num_results));
    }
    if (status != OPDOCK_INCOMPATIBLE) [[likely]]
      return status;
    // Replan: plans are not portable between providers, even if they describe the same outputs.
    return retry_with_next_provider(*function, target, status, [&](Target** on) {
      return invoke_anew(*function, with_hosts_workspace(how), args, num_args, results, num_results,
                         false, on, error);
    });
  } catch (...) {
    return status_of_exception(error);
  }
}

[[gnu::hot]] opdock_status opdock_invoke(opdock_function* function,
                                         const opdock_call_options* options,
                                         const opdock_value* args, uint32_t num_args,
                                         opdock_value* results, uint32_t num_results,
                                         char* error_text, uint32_t error_size) {
  const ErrorBuffer error{error_text, error_size};
  if (function == nullptr) return missing(error, "a function");
  try {
    opdock_status status = OPDOCK_OK;
    Target* target = accept_or_check(*function, args, num_args, false, &status, error);
    if (target == nullptr) return status;
    opdock_call_options room;
    const opdock_call_options& how = read_options(options, &room);
    Invocation in(*function, target, how, Phase::kPlan, error);
    if ((function->num_results() | num_results) != 0 || target->driver != nullptr ||
        function->writes()) {
      status = invoke_in_full(&in, args, num_args, results, num_results, true, error);
      if (status != OPDOCK_INCOMPATIBLE) [[likely]]
        return status;
      return retry_with_next_provider(*function, target, status, [&](Target** on) {
        return invoke_anew(*function, with_hosts_workspace(how), args, num_args, results,
                           num_results, true, on, error);
      });
    }
    opdock_plan plan;
    plan.struct_size = sizeof plan;
    plan.outputs = nullptr;
    status = plan_once(&in, args, num_args, &plan);
    if (status != OPDOCK_OK) return status;
    return run_once(&in, plan, args, num_args, nullptr, 0);
  } catch (...) {
    return status_of_exception(error);
  }
}

}  // extern "C"
