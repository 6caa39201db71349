// The functions of opdock.h that call an op.
// SPDX-License-Identifier: Apache-2.0
#include "call/call.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "call/accept.h"
#include "call/guarded.h"
#include "call/phases.h"
#include "call/places.h"

namespace opdock {
namespace {

template <class T, class M>
bool has_room_for(const T* owner, const M* member) {
  return reinterpret_cast<const char*>(member) + sizeof(M) <=
         reinterpret_cast<const char*>(owner) + owner->struct_size;
}

constexpr opdock_call_options kNoOptions{sizeof kNoOptions, 0, nullptr, nullptr, nullptr, 0};

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
}

// The caller's options, whatever the size of its declaration; `room` for those of a shorter one.
inline const opdock_call_options& read_options(const opdock_call_options* from,
                                               opdock_call_options* room) {
  if (from == nullptr) return kNoOptions;
  if (from->struct_size >= sizeof *from) [[likely]]
    return *from;
  read_short_options(from, room);
  return *room;
}

// The least that a plan of a caller has: what the first draft had.
constexpr size_t kLeastPlan = offsetof(opdock_plan, state) + sizeof(opdock_plan::state);

bool readable(const opdock_plan* plan) {
  return plan != nullptr && plan->struct_size >= kLeastPlan;
}

// A caller's plan of another size as one of the host's: the op must see what the host knows of it.
opdock_plan of_own_size(const opdock_plan& from) {
  opdock_plan own{};
  std::memcpy(&own, &from, std::min<size_t>(from.struct_size, sizeof own));
  own.struct_size = sizeof own;
  // Whoever has no room for the flag may have planned over shapes.
  if (!OPDOCK_HAS(&from, opdock_plan, flags)) own.flags = OPDOCK_PLAN_OF_SHAPES;
  return own;
}

[[gnu::cold, gnu::noinline]] opdock_status refuse(const opdock_function& function,
                                                  const ErrorBuffer& error, const std::string& text,
                                                  opdock_status status = OPDOCK_INVALID_ARGUMENT) {
  error.write(function.schema().name, ": ", text);
  return status;
}

[[gnu::cold, gnu::noinline]] opdock_status refuse_outputs(const opdock_function& function,
                                                          uint32_t found,
                                                          const ErrorBuffer& error) {
  return refuse(function, error,
                "found " + std::to_string(found) + " outputs, wanted " +
                    std::to_string(function.fresh()) + ", one per fresh result of the schema");
}

// An invocation with outputs, written arguments or on a GPU. may_lack: outputs that are NULL are
// allocated.
[[gnu::noinline]] opdock_status invoke_in_full(Invocation* in, const opdock_call_options& how,
                                               const opdock_value* args, uint32_t num_args,
                                               opdock_tensor** outputs, uint32_t num_outputs,
                                               bool may_lack, const ErrorBuffer& error) {
  const opdock_function& function = in->function;
  const Target& target = *in->target;
  opdock_output planned[kMaxReturns];
  opdock_plan plan;
  plan.struct_size = sizeof plan;
  plan.outputs = planned;
  opdock_status status = plan_once(in, args, num_args, &plan);
  if (status != OPDOCK_OK) return status;
  const uint32_t count = plan.num_outputs;
  if (num_outputs != count || (outputs == nullptr && num_outputs != 0)) {
    return refuse_outputs(function, num_outputs, error);
  }
  if ((num_outputs | uint32_t{function.writes()}) != 0) {
    status = check_outputs(function, target, plan, outputs, num_outputs, may_lack, error);
    if (status != OPDOCK_OK) return status;
    status = check_sharing(function, target, args, outputs, num_outputs, error);
    if (status != OPDOCK_OK) return status;
  }
  Context context(target);
  status = context.enter(function, how.stream, error);
  uint32_t made = 0;  // a bit an output
  static_assert(kMaxReturns <= 32);
  for (uint32_t i = 0; i < count && status == OPDOCK_OK; ++i) {
    if (outputs[i] != nullptr) continue;
    std::string problem;
    status = allocate_output(target, how.stream, plan.outputs[i], &outputs[i], &problem);
    if (status == OPDOCK_OK) {
      made |= 1u << i;
    } else {
      refuse(function, error, "output " + std::to_string(i) + ": " + problem, status);
    }
  }
  if (status == OPDOCK_OK) status = run_once(in, how, plan, args, num_args, outputs, count);
  for (uint32_t i = 0; status != OPDOCK_OK && i < count; ++i) {
    if ((made >> i & 1) == 0) continue;
    free_output(outputs[i]);
    outputs[i] = nullptr;
  }
  return status;
}

[[gnu::cold, gnu::noinline]] opdock_status refuse_room(const opdock_function& function,
                                                       const ErrorBuffer& error) {
  return refuse(function, error,
                "found a plan without room, wanted struct_size of at least " +
                    std::to_string(kLeastPlan) + " and outputs for " +
                    std::to_string(function.fresh()) + "; fill in struct_size and outputs");
}

[[gnu::cold, gnu::noinline]] opdock_status refuse_unplanned(const opdock_function& function,
                                                            const ErrorBuffer& error) {
  return refuse(function, error,
                "found a plan that opdock_plan_call did not fill in for this function, wanted one; "
                "plan first");
}

// After a failure on `target`: the same call on what the chain has further, as long as it fails for
// want of a kernel that cannot be made. call(&target) makes it anew and says on which target.
template <class Call>
[[gnu::cold, gnu::noinline]] opdock_status call_further(const opdock_function& function,
                                                        Target* target, opdock_status status,
                                                        const Call& call) {
  // Each turn gives up one provider; the limit is for those that other threads bring back.
  for (int turn = 0; turn < 8; ++turn) {
    if (status != OPDOCK_INCOMPATIBLE || target == nullptr) break;
    if (!function.resolver()->give_up(function, target)) break;
    target = nullptr;
    status = call(&target);
  }
  function.resolver()->end_of_call();
  return status;
}

// The quick look first; what it does not take is judged in full.
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

// Notes it in the plan if an argument had no data.
[[gnu::noinline]] void mark_shapes(const opdock_function& function, const opdock_value* args,
                                   opdock_plan* plan) {
  if (!OPDOCK_HAS(plan, opdock_plan, flags)) return;
  const bool real = each_tensor(function, args, [](ArgumentPlace, const opdock_value& value) {
    return (value.flags & OPDOCK_VALUE_NO_DATA) == 0;
  });
  if (!real) plan->flags |= OPDOCK_PLAN_OF_SHAPES;
}

// The whole call, with outputs that are all there.
opdock_status invoke_into(const opdock_function& function, const opdock_call_options& how,
                          const opdock_value* args, uint32_t num_args,
                          opdock_tensor* const* outputs, uint32_t num_outputs, Target** on,
                          const ErrorBuffer& error) {
  opdock_status status = OPDOCK_OK;
  Target* target = *on = accept_or_check(function, args, num_args, false, &status, error);
  if (target == nullptr) return status;
  Invocation in(function, target, how, Phase::kPlan, error);
  return invoke_in_full(&in, how, args, num_args, const_cast<opdock_tensor**>(outputs), num_outputs,
                        false, error);
}

}  // namespace
}  // namespace opdock

using namespace opdock;

extern "C" {

opdock_status opdock_prepare(opdock_function* function, opdock_device device, char* error_text,
                             uint32_t error_size) {
  const ErrorBuffer error{error_text, error_size};
  if (function == nullptr) return missing(error, "a function");
  try {
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
    return status == OPDOCK_OK ? status : call_further(*function, target, status, prepare);
  } catch (...) {
    return caught(error);
  }
}

// gnu::hot: for their branches to cold functions g++ makes these small rather than fast otherwise,
// and clears a plan by `rep stos`, which takes longer than all the rest.
[[gnu::hot]] opdock_status opdock_plan_call(opdock_function* function,
                                            const opdock_call_options* options,
                                            const opdock_value* args, uint32_t num_args,
                                            opdock_plan* plan, char* error_text,
                                            uint32_t error_size) {
  const ErrorBuffer error{error_text, error_size};
  if (function == nullptr) return missing(error, "a function");
  try {
    if (!readable(plan) || (plan->outputs == nullptr && function->fresh() != 0)) {
      return refuse_room(*function, error);
    }
    opdock_status status = OPDOCK_OK;
    Target* target = accept_arguments(*function, args, num_args);
    const bool quick = target != nullptr;
    if (!quick) target = check_arguments(*function, args, num_args, true, &status, error);
    if (target == nullptr) return status;
    opdock_call_options room;
    Invocation in(*function, target, read_options(options, &room), Phase::kPlan, error);
    status = plan->struct_size == sizeof *plan ? plan_once(&in, args, num_args, plan)
                                               : plan_of_other_size(&in, args, num_args, plan);
    if (!quick && status == OPDOCK_OK) mark_shapes(*function, args, plan);
    return status;
  } catch (...) {
    return caught(error);
  }
}

[[gnu::hot]] opdock_status opdock_run_planned(opdock_function* function,
                                              const opdock_call_options* options,
                                              const opdock_plan* plan, const opdock_value* args,
                                              uint32_t num_args, opdock_tensor* const* outputs,
                                              uint32_t num_outputs, char* error_text,
                                              uint32_t error_size) {
  const ErrorBuffer error{error_text, error_size};
  if (function == nullptr) return missing(error, "a function");
  try {
    if (!readable(plan) || plan->num_outputs != function->fresh() ||
        (plan->outputs == nullptr && plan->num_outputs != 0)) {
      return refuse_unplanned(*function, error);
    }
    opdock_plan own;
    if (plan->struct_size < sizeof *plan) [[unlikely]] {
      own = of_own_size(*plan);
      plan = &own;
    }
    opdock_call_options room;
    const opdock_call_options& how = read_options(options, &room);
    const auto anew = [&](Target** on) {
      return invoke_into(*function, how, args, num_args, outputs, num_outputs, on, error);
    };
    opdock_status status = OPDOCK_OK;
    Target* target = nullptr;
    if ((plan->flags & OPDOCK_PLAN_OF_SHAPES) != 0) [[unlikely]] {
      // The op has not seen where the data lies.
      status = anew(&target);
    } else {
      target = recheck_arguments(*function, args, num_args, &status, error);
      if (target == nullptr) return status;
      if ((num_outputs | plan->num_outputs | uint32_t{function->writes()}) != 0) {
        status = check_outputs(*function, *target, *plan, outputs, num_outputs, false, error);
        if (status != OPDOCK_OK) return status;
        status = check_sharing(*function, *target, args, outputs, num_outputs, error);
        if (status != OPDOCK_OK) return status;
      }
      Invocation in(*function, target, how, Phase::kRun, error);
      Context context(*target);
      status = context.enter(*function, how.stream, error);
      if (status != OPDOCK_OK) return status;
      status = run_once(&in, how, *plan, args, num_args, outputs, num_outputs);
    }
    if (status != OPDOCK_INCOMPATIBLE) [[likely]]
      return status;
    // Another provider's plan is its own, also where it comes to the same outputs.
    return call_further(*function, target, status, anew);
  } catch (...) {
    return caught(error);
  }
}

[[gnu::hot]] opdock_status opdock_invoke(opdock_function* function,
                                         const opdock_call_options* options,
                                         const opdock_value* args, uint32_t num_args,
                                         opdock_tensor** outputs, uint32_t num_outputs,
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
    if (function->fresh() != 0 || num_outputs != 0 || target->driver != nullptr ||
        function->writes()) {
      status = invoke_in_full(&in, how, args, num_args, outputs, num_outputs, true, error);
      if (status != OPDOCK_INCOMPATIBLE) [[likely]]
        return status;
      return call_further(*function, target, status, [&](Target** on) {
        opdock_status again = OPDOCK_OK;
        Target* further = *on = accept_or_check(*function, args, num_args, false, &again, error);
        if (further == nullptr) return again;
        Invocation second(*function, further, how, Phase::kPlan, error);
        return invoke_in_full(&second, how, args, num_args, outputs, num_outputs, true, error);
      });
    }
    opdock_plan plan;
    plan.struct_size = sizeof plan;
    plan.outputs = nullptr;
    status = plan_once(&in, args, num_args, &plan);
    if (status != OPDOCK_OK) return status;
    return run_once(&in, how, plan, args, num_args, nullptr, 0);
  } catch (...) {
    return caught(error);
  }
}

}  // extern "C"
