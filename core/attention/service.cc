// SPDX-License-Identifier: Apache-2.0
#include "attention/service.h"

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "attention/cudnn_library.h"
#include "attention/decisions.h"
#include "attention/form.h"
#include "attention/forms.h"
#include "attention/plan.h"
#include "attention/price.h"
#include "attention/settings.h"
#include "gemm/thread_states.h"
#include "schema/dtype.h"

namespace opdock::attention {
namespace {

using namespace cudnn;

// Each kind of reason is logged once: a warning if there is a library that cannot be used.
std::atomic<bool> said_missing{false}, said_unfit{false}, said_declined{false},
    said_unearned{false}, said_captured{false};

void say_once(const opdock_call* call, std::atomic<bool>* said, int32_t level,
              const std::string& why) {
  if (said->exchange(true, std::memory_order_relaxed)) return;
  call->host->log(call, level, ("attention is computed without cuDNN: " + why).c_str());
}

void say(const opdock_call* call, Code code, const std::string& why) {
  const bool is_unfit = code == Code::kAttentionLibraryUnfit;
  say_once(call,
           code == Code::kAttentionLibraryMissing ? &said_missing
           : is_unfit                             ? &said_unfit
                                                  : &said_declined,
           is_unfit ? 2 : 1, why);
}

// A handle for a device, used by one thread at a time, with the plans made for it: the library does
// not promise that a plan may run on two threads at once.
class State {
 public:
  Forms forms;

  // The library is opened for the first plan, and not for the forms that have to earn one.
  bool has_handle() const { return handle_ != nullptr; }
  void set_handle(const Api& api, cudnnHandle_t handle) {
    api_ = &api;
    handle_ = handle;
  }
  const Api& api() const { return *api_; }
  cudnnHandle_t handle() const { return handle_; }

  // Returns the handle, set to work on the stream.
  cudnnStatus_t use(void* stream) {
    if (has_stream_ && stream == stream_) return CUDNN_STATUS_SUCCESS;
    const cudnnStatus_t done = api_->cudnnSetStream(handle_, stream);
    has_stream_ = done == CUDNN_STATUS_SUCCESS;
    stream_ = stream;
    return done;
  }

 private:
  const Api* api_ = nullptr;
  cudnnHandle_t handle_ = nullptr;
  bool has_stream_ = false;
  void* stream_ = nullptr;
};

using States = gemm::ThreadStates<State>;

// Why no library can be used, once that is known.
std::atomic<const std::string*> refusal{nullptr};
std::atomic<bool> has_handles{false};  // a thread has had one
thread_local std::string last_why;

Answer decline(const opdock_call* call, const Reason& why) {
  last_why = to_text(why);
  say(call, why.code, last_why);
  return {Outcome::kDeclined, last_why};
}

Answer refuse_for_good(const opdock_call* call, const Reason& why) {
  const auto* const text = new std::string(to_text(why));
  refusal.store(text, std::memory_order_release);
  say(call, why.code, *text);
  return {Outcome::kDeclined, *text};
}

State& state_of(const opdock_call* call) {
  State*& slot = States::of(call->device.index);
  if (slot == nullptr) slot = States::take_left(call->device.index);
  if (slot == nullptr) slot = new State;
  return *slot;
}

// Opens the library and makes this thread's handle. The device's context is current.
bool open_handle(Caller* caller, State* state, Answer* answer) {
  if (state->has_handle()) return true;
  const opdock_call* const call = caller->call();
  Reason why{};
  const Api* const api = open_library(caller->driver(), &why);
  if (api == nullptr) {
    *answer = refuse_for_good(call, why);
    return false;
  }
  cudnnHandle_t handle = nullptr;
  const cudnnStatus_t made = api->cudnnCreate(&handle);
  if (made == CUDNN_STATUS_SUCCESS) {
    state->set_handle(*api, handle);
    has_handles.store(true, std::memory_order_relaxed);
    return true;
  }
  why = make_reason(Code::kAttentionLibraryUnfit, "cudnnCreate: " + describe_status(*api, made),
                    "a cuDNN that works with this GPU and driver");
  const bool may_pass = made == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
                        made == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
  // A library that has served this process on another thread is not refused for good.
  *answer = may_pass || has_handles.load(std::memory_order_relaxed) ? decline(call, why)
                                                                    : refuse_for_good(call, why);
  return false;
}

// Makes the context of the call current while it lives.
class Entered {
 public:
  explicit Entered(Caller* caller) : driver_(caller->driver()) {
    done = driver_->enter(caller->call()->device.index, caller->call()->stream, &previous_);
  }
  ~Entered() {
    if (done.ok()) driver_->leave(previous_);
  }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;
  Status done;

 private:
  Driver* driver_;
  void* previous_ = nullptr;
};

// Makes room for another plan. Kernels of the plan that goes may still be queued on any stream of
// the context, so all of them are waited for: beside the time of a new plan that is little.
bool make_room(Caller* caller, Forms* forms) {
  if (!forms->is_full()) return true;
  Forms::Entry* const oldest = forms->oldest_plan();
  using Synchronize = int (*)();
  const auto synchronize =
      reinterpret_cast<Synchronize>(caller->driver()->symbol("cuCtxSynchronize"));
  if (oldest == nullptr || synchronize == nullptr || synchronize() != 0) return false;
  forms->forget_plan(oldest);
  return true;
}

void record(const Caller& caller, const Forms::Entry& entry, const std::string& why) {
  record_decision({caller.op(), to_text(caller.call()->device), describe_form(entry.form),
                   entry.plan != nullptr, why});
}

Reason captured_unplanned() {
  return make_reason(Code::kAttentionDeclined,
                     "the stream being captured, and this attention not planned on this thread",
                     "the same call once before the capture, and OPDOCK_ATTENTION=cudnn so that it "
                     "makes the plan");
}

// Returns whether the entry has a plan now; false and *answer if not.
bool make_plan(Caller* caller, State* state, Forms::Entry* entry, Answer* answer) {
  const opdock_call* const call = caller->call();
  const Entered entered(caller);
  if (!entered.done.ok()) {
    *answer = decline(
        call, make_reason(Code::kAttentionDeclined, entered.done.text, "the device's context"));
    return false;
  }
  bool is_capturing = false;
  if (const opdock_status asked = caller->is_capturing(&is_capturing); asked != OPDOCK_OK) {
    *answer = {Outcome::kFailed, {}, asked};
    return false;
  }
  if (is_capturing) {
    *answer = decline(call, captured_unplanned());
    return false;
  }
  if (!open_handle(caller, state, answer)) return false;
  if (!make_room(caller, &state->forms)) {
    *answer = decline(call, make_reason(Code::kAttentionDeclined,
                                        std::to_string(Forms::kMaxPlans) +
                                            " kinds of attention planned that cannot be forgotten",
                                        "fewer shapes and strides"));
    return false;
  }
  auto made = std::make_unique<Plan>(state->api());
  made->make(state->handle(), entry->form);
  if (made->why.empty()) {
    state->forms.set_plan(entry, std::move(made));
  } else {
    entry->why = made->why;
    say(call, Code::kAttentionDeclined, entry->why);
    *answer = {Outcome::kDeclined, entry->why};
  }
  return entry->plan != nullptr;
}

// Own kernels serve a form that has not earned its plan. This is the path of every prompt of a new
// length, so its reason is a constant.
const std::string& unearned() {
  static const auto* const text = new std::string(to_text(
      make_reason(Code::kAttentionDeclined,
                  "a shape that has not earned a plan: the plugin's kernels have lost less time by "
                  "it than the plan takes",
                  "more calls of this shape, or OPDOCK_ATTENTION=cudnn")));
  return *text;
}

// Returns why a form is declined, if a rule says so: the same in each call of the process.
std::optional<Reason> rule_against(const Form& form, const opdock_device_facts& facts) {
  if (form.has(OPDOCK_ATTENTION_DROPOUT) && !plans_at_once()) {
    return make_reason(
        Code::kAttentionDeclined,
        "dropout, of which the library keeps other weights than the plugin's kernels",
        "OPDOCK_ATTENTION=cudnn, forward and backward");
  }
  return known_refusal(form, facts.arch_major, facts.arch_minor);
}

Forms::Entry* add_form(Caller* caller, Forms* forms, const Form& form) {
  const opdock_call* const call = caller->call();
  Forms::Entry* const entry = forms->add(form);
  entry->price = lost_seconds(form, *call->facts);
  if (const auto why = rule_against(form, *call->facts)) {
    entry->why = to_text(*why);
    say(call, why->code, entry->why);
  }
  // Only the library can compute the gradients of what it has computed forward.
  entry->is_promised =
      form.has(OPDOCK_ATTENTION_DROPOUT) && !rule_against(forward_of(form), *call->facts);
  record(*caller, *entry, entry->why.empty() && !plans_at_once() ? unearned() : entry->why);
  return entry;
}

// An attention whose dropout the library has decided, or will, is not left to other kernels.
Answer settle(Caller* caller, const Forms::Entry& entry, const Answer& answer) {
  if (answer.outcome != Outcome::kDeclined || !entry.is_promised) return answer;
  const opdock_call* const call = caller->call();
  // Without the reason's advice, which is to take other kernels.
  const std::string text =
      "attention: " + std::string(answer.why.substr(0, answer.why.find(". "))) +
      ". Other kernels would drop other weights; use OPDOCK_ATTENTION=own for all of the process";
  return {Outcome::kFailed, {}, call->host->set_error(call, OPDOCK_INCOMPATIBLE, text.c_str())};
}

// Counts a call of own kernels. A graph repeats them who knows how often, so that a capture earns
// the plan at once, for what comes after it.
Answer lose(Caller* caller, Forms::Entry* entry) {
  const opdock_call* const call = caller->call();
  bool is_capturing = false;
  if (const opdock_status asked = caller->is_capturing(&is_capturing); asked != OPDOCK_OK)
    return {Outcome::kFailed, {}, asked};
  entry->lost += is_capturing ? kPlanSeconds : entry->price;
  if (!is_capturing) {
    say_once(call, &said_unearned, 1, unearned());
    return {Outcome::kDeclined, unearned()};
  }
  const std::string why = to_text(captured_unplanned());
  record(*caller, *entry, why);
  // A tenth of a millisecond is worth a warning.
  say_once(call, &said_captured, entry->price >= 1e-4 ? 2 : 1, why);
  last_why = why;
  return {Outcome::kDeclined, last_why};
}

// Whether a form has to earn its plan. It has not where equal calls must give equal bits: own
// kernels and the library round differently.
bool has_to_earn(const Caller& caller, const Form& form) {
  if (plans_at_once()) return false;
  const bool backward = form.has(OPDOCK_ATTENTION_BACKWARD);  // then the host has asked already
  return !(backward ? form.has(OPDOCK_ATTENTION_DETERMINISTIC) : caller.wants_equal_bits());
}

enum class When { kShapesAlone, kPlan, kRun };

// Returns the form's entry, which has a plan, or NULL and *answer.
Forms::Entry* usable(Caller* caller, const Form& form, When when, Answer* answer) {
  const opdock_call* const call = caller->call();
  State& state = state_of(call);
  Forms::Entry* entry = state.forms.find(form);
  if (entry != nullptr && entry->plan != nullptr) return entry;
  if (const std::string* const known = refusal.load(std::memory_order_acquire)) {
    *answer = {Outcome::kDeclined, *known};
    return nullptr;
  }
  if (prefers_own()) {
    *answer = refuse_for_good(call, make_reason(Code::kAttentionDeclined, "OPDOCK_ATTENTION=own",
                                                "OPDOCK_ATTENTION=cudnn or no value"));
    return nullptr;
  }
  if (when == When::kShapesAlone) {
    if (const auto why = rule_against(form, *call->facts)) *answer = decline(call, *why);
    return nullptr;
  }
  if (entry == nullptr) entry = add_form(caller, &state.forms, form);
  if (!entry->why.empty()) {
    *answer = settle(caller, *entry, {Outcome::kDeclined, entry->why});
    return nullptr;
  }
  if (entry->lost < kPlanSeconds && has_to_earn(*caller, form)) {
    *answer = when == When::kRun ? lose(caller, entry) : Answer{Outcome::kDeclined, unearned()};
    return nullptr;
  }
  const bool is_made = make_plan(caller, &state, entry, answer);
  if (answer->outcome != Outcome::kFailed) record(*caller, *entry, std::string(answer->why));
  if (is_made) return entry;
  // Where no library can be used, none has computed anything forward.
  if (refusal.load(std::memory_order_acquire) == nullptr) *answer = settle(caller, *entry, *answer);
  return nullptr;
}

}  // namespace

Answer plan(Caller* caller, const Form& form, bool has_data, uint64_t* workspace_bytes) {
  Answer answer;
  const Forms::Entry* const found =
      usable(caller, form, has_data ? When::kPlan : When::kShapesAlone, &answer);
  *workspace_bytes = found == nullptr ? 0 : found->plan->workspace_bytes;
  return answer;
}

void prepare(Caller* caller) {
  Answer ignored;
  if (!prefers_own() && refusal.load(std::memory_order_acquire) == nullptr)
    open_handle(caller, &state_of(caller->call()), &ignored);
}

Answer run(Caller* caller, const Form& form, const opdock_attention& what, void* workspace,
           uint64_t workspace_bytes) {
  const opdock_call* const call = caller->call();
  Answer answer;
  Forms::Entry* const entry = usable(caller, form, When::kRun, &answer);
  if (entry == nullptr) return answer;
  const Plan& plan = *entry->plan;
  if (plan.workspace_bytes > workspace_bytes) {
    answer = decline(call, make_reason(Code::kAttentionDeclined,
                                       std::to_string(workspace_bytes) + " bytes of workspace",
                                       std::to_string(plan.workspace_bytes) +
                                           ", as plan says for these strides and alignments"));
    return settle(caller, *entry, answer);
  }
  if (!entry->is_captured) {
    if (const opdock_status asked = caller->is_capturing(&entry->is_captured); asked != OPDOCK_OK)
      return {Outcome::kFailed, {}, asked};
  }
  State& state = state_of(call);
  const Status filled = plan.fill_workspace(caller->driver(), form, what, workspace, call->stream);
  std::string found = filled.text;
  opdock_status failed = filled.status;
  if (filled.ok()) {
    cudnnStatus_t status = state.use(call->stream);
    if (status == CUDNN_STATUS_SUCCESS)
      status = plan.enqueue(state.handle(), form, what, workspace);
    if (status == CUDNN_STATUS_SUCCESS) return answer;
    found = "cudnnBackendExecute: found " + describe_status(state.api(), status) +
            ", wanted the attention enqueued; see cuDNN's reference for this status";
    failed = OPDOCK_DEVICE_ERROR;
  }
  found = "attention: " + found;
  return {Outcome::kFailed, {}, call->host->set_error(call, failed, found.c_str())};
}

}  // namespace opdock::attention
