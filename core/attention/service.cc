// SPDX-License-Identifier: Apache-2.0
#include "attention/service.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <unordered_map>

#include "attention/cudnn_library.h"
#include "attention/form.h"
#include "attention/graph.h"
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

uint64_t round_up(uint64_t bytes) {
  return (bytes + 255) / 256 * 256;
}

std::string describe_status(const Api& api, cudnnStatus_t status) {
  const char* const name = api.cudnnGetErrorString(status);
  std::string text =
      (name == nullptr ? "an unknown status" : name) + (" (" + std::to_string(status) + ")");
  // The first line with a reason says most; others name the library's own functions.
  char last[2048] = "";
  api.cudnnGetLastErrorString(last, sizeof last);
  last[sizeof last - 1] = '\0';
  if (const char* const reason = std::strstr(last, "Reason: ")) {
    const std::string_view line = reason + std::strlen("Reason: ");
    text += ", " + std::string(line.substr(0, std::min<size_t>(line.find('\n'), 200)));
  }
  return text;
}

// The library's plan for a form, or why there is none.
class Plan {
 public:
  explicit Plan(const Api& api) : descriptors_(api) {}

  void make(cudnnHandle_t handle, const Form& form) {
    const cudnnBackendDescriptor_t graph = describe(&descriptors_, handle, form, &uids_);
    if (graph != nullptr) choose(handle, graph);
    if (plan_ == nullptr) {
      why = to_text(make_reason(Code::kAttentionDeclined,
                                describe_status(descriptors_.api(), descriptors_.status()),
                                "a kernel for this attention"));
      return;
    }
    uint64_t at = round_up(static_cast<uint64_t>(library_bytes_));
    const auto room = [&at](uint64_t bytes) {
      const uint64_t begin = at;
      at += round_up(bytes);
      return begin;
    };
    const auto rows = static_cast<uint64_t>(form.batch * form.heads * form.queries);
    if (form.has(OPDOCK_ATTENTION_BACKWARD)) {
      row_sums_ = room(rows * sizeof(float));
      if (!form.has(OPDOCK_ATTENTION_DETERMINISTIC))
        d_q_sums_ = room(rows * static_cast<uint64_t>(form.size) * sizeof(float));
    }
    if (form.has_lengths()) lengths_ = room(static_cast<uint64_t>(form.batch) * sizeof(int32_t));
    workspace_bytes = at;
  }

  // Fills in a row's length where only the other one is given.
  Status fill_lengths(Driver* driver, const Form& form, void* workspace, void* stream) const {
    const bool has_queries = form.has(OPDOCK_ATTENTION_QUERY_LENGTHS);
    if (!form.has_lengths() || (has_queries && form.has(OPDOCK_ATTENTION_KEY_LENGTHS))) return {};
    using Fill = int (*)(uint64_t to, uint32_t value, size_t count, void* stream);
    const auto fill = reinterpret_cast<Fill>(driver->symbol("cuMemsetD32Async"));
    const int64_t value = has_queries ? form.keys : form.queries;
    const int done = fill == nullptr ? -1
                                     : fill(reinterpret_cast<uint64_t>(workspace) + lengths_,
                                            static_cast<uint32_t>(value),
                                            static_cast<size_t>(form.batch), stream);
    if (done == 0) return {};
    return {OPDOCK_DEVICE_ERROR, "cuMemsetD32Async: found status " + std::to_string(done) +
                                     ", wanted the lengths written; see the driver's manual"};
  }

  cudnnStatus_t enqueue(cudnnHandle_t handle, const Form& form, const opdock_attention& what,
                        void* workspace) const {
    const float shift = static_cast<float>(
        form.window - (form.has(OPDOCK_ATTENTION_BOTTOM_RIGHT) ? form.keys - form.queries : 0));
    const Numbers numbers = {what.scale,
                             -std::numeric_limits<float>::infinity(),
                             1.0f,
                             shift,
                             static_cast<int32_t>(form.window),
                             static_cast<int32_t>(form.queries),
                             static_cast<int32_t>(form.keys)};
    std::array<const void*, kMaxTensors> addresses;
    for (size_t i = 0; i < uids_.size(); ++i)
      addresses[i] = address(static_cast<Uid>(uids_[i]), what, numbers, workspace);
    const Api& api = descriptors_.api();
    Descriptors once(api);
    const auto count = static_cast<int64_t>(uids_.size());
    const cudnnBackendDescriptor_t pack = once.make(
        CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
        {{CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace},
         {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, addresses.data()},
         {CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, uids_.data()}});
    return pack == nullptr ? once.status() : api.cudnnBackendExecute(handle, plan_, pack);
  }

  std::string why;  // empty: the plan can be used
  uint64_t workspace_bytes = 0;

 private:
  static constexpr size_t kMaxTensors = kKeyCount;

  struct Numbers {
    float scale, minus_infinity, one, window;
    int32_t window_count, query_count, key_count;
  };

  const void* address(Uid uid, const opdock_attention& what, const Numbers& numbers,
                      void* workspace) const {
    char* const own = static_cast<char*>(workspace);
    switch (uid) {
      case kQ:
        return what.q.data;
      case kK:
        return what.k.data;
      case kV:
        return what.v.data;
      case kOut:
        return what.out.data;
      case kLse:
        return what.lse;
      case kBias:
        return what.bias;
      case kQueryLengths:
        return (what.flags & OPDOCK_ATTENTION_QUERY_LENGTHS) != 0
                   ? what.query_lengths
                   : static_cast<void*>(own + lengths_);
      case kKeyLengths:
        return (what.flags & OPDOCK_ATTENTION_KEY_LENGTHS) != 0
                   ? what.key_lengths
                   : static_cast<void*>(own + lengths_);
      case kDOut:
        return what.d_out.data;
      case kDQ:
        return what.d_q.data;
      case kDK:
        return what.d_k.data;
      case kDV:
        return what.d_v.data;
      case kDQSums:
        return own + d_q_sums_;
      case kRowSums:
        return own + row_sums_;
      case kScale:
        return &numbers.scale;
      case kMinusInfinity:
        return &numbers.minus_infinity;
      case kOne:
        return &numbers.one;
      case kWindow:
        return &numbers.window;
      case kWindowCount:
        return &numbers.window_count;
      case kQueryCount:
        return &numbers.query_count;
      case kKeyCount:
        return &numbers.key_count;
      case kFirstVirtual:
        break;
    }
    return nullptr;
  }

  // Takes the first kernel of the library's list that it can make ready.
  void choose(cudnnHandle_t handle, cudnnBackendDescriptor_t graph) {
    const Api& api = descriptors_.api();
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    const cudnnBackendDescriptor_t list = descriptors_.make(
        CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR,
        {{CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph},
         {CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode}});
    if (list == nullptr) return;
    int64_t count = 0;
    descriptors_.fail(api.cudnnBackendGetAttribute(
        list, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr));
    std::vector<cudnnBackendDescriptor_t> configs;
    for (int64_t i = 0; i < count; ++i)
      configs.push_back(descriptors_.create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
    if (descriptors_.status() != CUDNN_STATUS_SUCCESS) return;
    descriptors_.fail(api.cudnnBackendGetAttribute(list, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                   CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &count,
                                                   configs.data()));
    cudnnStatus_t last = CUDNN_STATUS_NOT_SUPPORTED;
    for (int64_t i = 0; i < count && plan_ == nullptr; ++i) {
      auto tried = std::make_unique<Descriptors>(api);
      const cudnnBackendDescriptor_t plan =
          tried->make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
                      {{CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle},
                       {CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                        &configs[static_cast<size_t>(i)]}});
      last = tried->status();
      if (plan == nullptr) continue;
      last = api.cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                          CUDNN_TYPE_INT64, 1, nullptr, &library_bytes_);
      if (last != CUDNN_STATUS_SUCCESS || library_bytes_ < 0) continue;
      plan_ = plan;
      chosen_ = std::move(tried);
    }
    if (plan_ == nullptr) descriptors_.fail(last);
  }

  Descriptors descriptors_;
  std::unique_ptr<Descriptors> chosen_;
  cudnnBackendDescriptor_t plan_ = nullptr;
  std::vector<int64_t> uids_;
  int64_t library_bytes_ = 0;
  uint64_t row_sums_ = 0, d_q_sums_ = 0, lengths_ = 0;  // where they lie in the workspace
};

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
