// SPDX-License-Identifier: Apache-2.0
#include "call/attention.h"

#include <string>

#include "attention/form.h"
#include "attention/service.h"
#include "call/invocation.h"
#include "schema/dtype.h"

namespace opdock {
namespace {

using attention::Answer;
using attention::Form;
using attention::Outcome;

bool wants_deterministic(const Invocation& in) {
  return in.how.wants_deterministic != nullptr && in.how.wants_deterministic() != 0;
}

class HostCaller : public attention::Caller {
 public:
  explicit HostCaller(Invocation* in) : Caller(&in->call, in->target->driver), in_(*in) {}
  const std::string& op() const override { return in_.function.schema().name; }
  bool wants_equal_bits() const override { return wants_deterministic(in_); }
  opdock_status is_capturing(bool* out) override { return in_.is_capturing(out); }

 private:
  Invocation& in_;
};

opdock_status check_phase(Invocation& in, const char* function, Phase phase) {
  if (in.phase == phase) return OPDOCK_OK;
  return in.fail(OPDOCK_INTERNAL, std::string("attention: found ") + function +
                                      "() called from another phase, wanted each function in the "
                                      "phase of its name; move it");
}

// Begins plan and run: checks the phase and the device, then reads the struct.
opdock_status enter_attention(Invocation& in, const char* function, Phase phase,
                              const opdock_attention** what, opdock_attention* room, Form* form) {
  const opdock_status checked = check_phase(in, function, phase);
  if (checked != OPDOCK_OK) return checked;
  Status problem;
  *what = attention::read_attention(*what, room, &problem);
  if (*what != nullptr) problem = attention::form_of(**what, form);
  if (!problem.ok()) return in.fail(problem.status, problem.text);
  if (in.call.device.type != OPDOCK_CUDA)
    return in.fail(
        OPDOCK_UNSUPPORTED,
        to_text(make_reason(Code::kAttentionDeclined, to_text(in.call.device), "a CUDA device")));
  if (form->has(OPDOCK_ATTENTION_BACKWARD) && wants_deterministic(in))
    form->flags |= OPDOCK_ATTENTION_DETERMINISTIC;
  return OPDOCK_OK;
}

opdock_status status_of(Invocation& in, const Answer& answer) {
  if (answer.outcome == Outcome::kServed) return OPDOCK_OK;
  return answer.outcome == Outcome::kDeclined ? in.fail(OPDOCK_UNSUPPORTED, answer.why)
                                              : answer.status;
}

opdock_status plan_attention(Invocation& in, const opdock_attention* what,
                             uint64_t* workspace_bytes) {
  opdock_attention room;
  Form form;
  const opdock_status entered = enter_attention(in, "plan", Phase::kPlan, &what, &room, &form);
  if (entered != OPDOCK_OK) return entered;
  HostCaller caller(&in);
  return status_of(in, attention::plan(&caller, form, what->q.data != nullptr, workspace_bytes));
}

opdock_status prepare_attention(Invocation& in) {
  const opdock_status checked = check_phase(in, "prepare", Phase::kPrepare);
  if (checked != OPDOCK_OK || in.call.device.type != OPDOCK_CUDA) return checked;
  HostCaller caller(&in);
  attention::prepare(&caller);
  return OPDOCK_OK;
}

opdock_status run_attention(Invocation& in, const opdock_attention* what, void* workspace,
                            uint64_t workspace_bytes) {
  opdock_attention room;
  Form form;
  const opdock_status entered = enter_attention(in, "run", Phase::kRun, &what, &room, &form);
  if (entered != OPDOCK_OK) return entered;
  if (const char* missing = attention::missing_address(*what)) {
    return in.fail(OPDOCK_INTERNAL, std::string("attention: ") + missing +
                                        ": found NULL, wanted an address; fill it in");
  }
  HostCaller caller(&in);
  return status_of(in, attention::run(&caller, form, *what, workspace, workspace_bytes));
}

Invocation& attention_invocation(const opdock_call* call) {
  return *static_cast<Invocation*>(call->host_data);
}

opdock_status attention_plan(const opdock_call* call, const opdock_attention* what,
                             uint64_t* workspace_bytes) noexcept {
  Invocation& in = attention_invocation(call);
  return answer(in, [&] { return plan_attention(in, what, workspace_bytes); });
}
opdock_status attention_prepare(const opdock_call* call) noexcept {
  Invocation& in = attention_invocation(call);
  return answer(in, [&] { return prepare_attention(in); });
}
opdock_status attention_run(const opdock_call* call, const opdock_attention* what, void* workspace,
                            uint64_t workspace_bytes) noexcept {
  Invocation& in = attention_invocation(call);
  return answer(in, [&] { return run_attention(in, what, workspace, workspace_bytes); });
}

constexpr opdock_attention_table kAttentionTable = {
    sizeof(opdock_attention_table), 0, attention_plan, attention_prepare, attention_run};

}  // namespace

const opdock_attention_table* attention_extension() {
  return &kAttentionTable;
}

}  // namespace opdock
