// SPDX-License-Identifier: Apache-2.0
#include "attention/service.h"

#include <atomic>
#include <memory>
#include <string>
#include <unordered_map>

#include "attention/cudnn_library.h"
#include "attention/form.h"
#include "attention/plan.h"
#include "attention/settings.h"
#include "gemm/thread_states.h"

namespace opdock::attention {
namespace {

using namespace cudnn;

// A plan is never destroyed, because a captured graph may use its kernels. So at this number, per
// thread and device, the library declines new forms.
constexpr size_t kMaxPlans = 4096;

// Each kind of reason is logged once: a warning if there is a library that cannot be used.
std::atomic<bool> said_missing{false}, said_unfit{false}, said_declined{false};

void say(const opdock_call* call, Code code, const std::string& why) {
  std::atomic<bool>& said = code == Code::kAttentionLibraryMissing ? said_missing
                            : code == Code::kAttentionLibraryUnfit ? said_unfit
                                                                   : said_declined;
  if (said.exchange(true, std::memory_order_relaxed)) return;
  const std::string text = "attention is computed without cuDNN: " + why;
  call->host->log(call, code == Code::kAttentionLibraryUnfit ? 2 : 1, text.c_str());
}

// A handle for a device, used by one thread at a time, with the plans made for it: the library does
// not promise that a plan may run on two threads at once.
class State {
 public:
  State(const Api& api, cudnnHandle_t handle) : api_(api), handle_(handle) {}

  Plan* find(const Form& form) const {
    const auto known = plans_.find(form);
    return known == plans_.end() ? nullptr : known->second.get();
  }
  // Returns the plan for a new form; never NULL.
  Plan* add(const Form& form, std::unique_ptr<Plan> made) {
    return (plans_[form] = std::move(made)).get();
  }
  bool is_full() const { return plans_.size() >= kMaxPlans; }
  const Api& api() const { return api_; }
  cudnnHandle_t handle() const { return handle_; }

  // Returns the handle, set to work on the stream.
  cudnnStatus_t use(void* stream) {
    if (has_stream_ && stream == stream_) return CUDNN_STATUS_SUCCESS;
    const cudnnStatus_t done = api_.cudnnSetStream(handle_, stream);
    has_stream_ = done == CUDNN_STATUS_SUCCESS;
    stream_ = stream;
    return done;
  }

 private:
  const Api& api_;
  cudnnHandle_t handle_;
  bool has_stream_ = false;
  void* stream_ = nullptr;
  std::unordered_map<Form, std::unique_ptr<Plan>, FormHash> plans_;
};

using States = gemm::ThreadStates<State>;

// Why no library can be used, once that is known.
std::atomic<const std::string*> refusal{nullptr};
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

// Opens the library and makes this thread's handle. The device's context is current.
State* make_state(Caller* caller, Answer* answer) {
  const opdock_call* const call = caller->call();
  State*& slot = States::of(call->device.index);
  if (slot != nullptr) return slot;
  Reason why{};
  const Api* const api = open_library(caller->driver(), &why);
  if (api == nullptr) {
    *answer = refuse_for_good(call, why);
    return nullptr;
  }
  if (slot = States::take_left(call->device.index); slot != nullptr) return slot;
  cudnnHandle_t handle = nullptr;
  const cudnnStatus_t made = api->cudnnCreate(&handle);
  if (made == CUDNN_STATUS_SUCCESS) return slot = new State(*api, handle);
  why = make_reason(Code::kAttentionLibraryUnfit, "cudnnCreate: " + describe_status(*api, made),
                    "a cuDNN that works with this GPU and driver");
  const bool may_pass = made == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
                        made == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
  *answer = may_pass ? decline(call, why) : refuse_for_good(call, why);
  return nullptr;
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

// Returns the plan, or NULL and *answer.
Plan* make_plan(Caller* caller, const Form& form, Answer* answer) {
  const opdock_call* const call = caller->call();
  const Entered entered(caller);
  if (!entered.done.ok()) {
    *answer = decline(
        call, make_reason(Code::kAttentionDeclined, entered.done.text, "the device's context"));
    return nullptr;
  }
  bool is_capturing = false;
  if (const opdock_status asked = caller->is_capturing(&is_capturing); asked != OPDOCK_OK) {
    *answer = {Outcome::kFailed, {}, asked};
    return nullptr;
  }
  if (is_capturing) {
    *answer = decline(call, make_reason(Code::kAttentionDeclined,
                                        "the stream being captured, and this attention not planned "
                                        "on this thread",
                                        "the same call once before the capture"));
    return nullptr;
  }
  State* const state = make_state(caller, answer);
  if (state == nullptr) return nullptr;
  if (Plan* const known = state->find(form)) return known;
  if (state->is_full()) {
    *answer = decline(call, make_reason(Code::kAttentionDeclined,
                                        std::to_string(kMaxPlans) + " kinds of attention planned",
                                        "fewer shapes and strides"));
    return nullptr;
  }
  auto made = std::make_unique<Plan>(state->api());
  made->make(state->handle(), form);
  if (!made->why.empty()) say(call, Code::kAttentionDeclined, made->why);
  return state->add(form, std::move(made));
}

// Returns the plan that can be used, or NULL and *answer.
Plan* usable_plan(Caller* caller, const Form& form, bool may_make, Answer* answer) {
  const opdock_call* const call = caller->call();
  const State* const state = States::of(call->device.index);
  Plan* plan = state == nullptr ? nullptr : state->find(form);
  if (plan == nullptr) {
    if (const std::string* const known = refusal.load(std::memory_order_acquire)) {
      *answer = {Outcome::kDeclined, *known};
      return nullptr;
    }
    if (prefers_own()) {
      *answer = refuse_for_good(call, make_reason(Code::kAttentionDeclined, "OPDOCK_ATTENTION=own",
                                                  "OPDOCK_ATTENTION=cudnn or no value"));
      return nullptr;
    }
    const auto why = known_refusal(form, call->facts->arch_major, call->facts->arch_minor);
    if (why) {
      *answer = decline(call, *why);
      return nullptr;
    }
    if (!may_make) return nullptr;
    plan = make_plan(caller, form, answer);
    if (plan == nullptr) return nullptr;
  }
  if (plan->why.empty()) return plan;
  *answer = {Outcome::kDeclined, plan->why};
  return nullptr;
}

}  // namespace

Answer plan(Caller* caller, const Form& form, bool has_data, uint64_t* workspace_bytes) {
  Answer answer;
  const Plan* const found = usable_plan(caller, form, has_data, &answer);
  *workspace_bytes = found == nullptr ? 0 : found->workspace_bytes;
  return answer;
}

void prepare(Caller* caller) {
  Answer ignored;
  if (!prefers_own() && refusal.load(std::memory_order_acquire) == nullptr)
    make_state(caller, &ignored);
}

Answer run(Caller* caller, const Form& form, const opdock_attention& what, void* workspace,
           uint64_t workspace_bytes) {
  const opdock_call* const call = caller->call();
  Answer answer;
  const Plan* const plan = usable_plan(caller, form, true, &answer);
  if (plan == nullptr) return answer;
  if (plan->workspace_bytes > workspace_bytes) {
    return decline(call, make_reason(Code::kAttentionDeclined,
                                     std::to_string(workspace_bytes) + " bytes of workspace",
                                     std::to_string(plan->workspace_bytes) +
                                         ", as plan says for these strides and alignments"));
  }
  State* const state = States::of(call->device.index);
  const Status filled = plan->fill_lengths(caller->driver(), form, workspace, call->stream);
  std::string found = filled.text;
  opdock_status failed = filled.status;
  if (filled.ok()) {
    cudnnStatus_t status = state->use(call->stream);
    if (status == CUDNN_STATUS_SUCCESS)
      status = plan->enqueue(state->handle(), form, what, workspace);
    if (status == CUDNN_STATUS_SUCCESS) return answer;
    found = "cudnnBackendExecute: found " + describe_status(state->api(), status) +
            ", wanted the attention enqueued; see cuDNN's reference for this status";
    failed = OPDOCK_DEVICE_ERROR;
  }
  found = "attention: " + found;
  return {Outcome::kFailed, {}, call->host->set_error(call, failed, found.c_str())};
}

}  // namespace opdock::attention
