// SPDX-License-Identifier: Apache-2.0
#include "gemm/cublaslt.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <string>
#include <unordered_map>

#include "gemm/cublaslt_library.h"
#include "gemm/thread_states.h"

namespace opdock::gemm {
namespace {

using namespace cublaslt;

constexpr size_t kMaxPlans = 4096;  // per thread and device; at this number all plans are dropped
constexpr uint32_t kMaxAlignment = 256;

// Distinguishes products whose algorithms may differ. Compared and hashed as bytes, so it must have
// no padding.
struct Key {
  int64_t m, n, k, batch;
  int64_t strides[4];  // of a, b, c, d
  int64_t batch_strides[4];
  uint64_t most_workspace;
  uint16_t alignments[5];  // of the operands' addresses, and of the bias's
  uint8_t elements[5];
  uint8_t flags;  // TF32
  uint8_t activation;
  uint8_t transposed;  // a: 1, b: 2
  uint8_t scaled;      // a: 1, b: 2, d: 4
  uint8_t has_c;
  uint32_t unused;

  bool operator==(const Key& other) const { return std::memcmp(this, &other, sizeof *this) == 0; }
};
static_assert(std::has_unique_object_representations_v<Key>);

struct KeyHash {
  size_t operator()(const Key& key) const {
    uint64_t words[sizeof(Key) / 8];
    static_assert(sizeof words == sizeof key);
    std::memcpy(words, &key, sizeof words);
    uint64_t hash = 0;
    for (const uint64_t word : words) hash = (std::rotl(hash, 23) ^ word) * 0x9e3779b97f4a7c15u;
    return static_cast<size_t>(hash ^ hash >> 32);
  }
};

// An address that is not known yet (NULL) is assumed to be well aligned, as fresh results are.
uint16_t alignment_of(const void* address) {
  const auto bits = reinterpret_cast<uintptr_t>(address) | kMaxAlignment;
  return static_cast<uint16_t>(bits & ~(bits - 1));
}

uint64_t most_workspace(const opdock_device_facts& facts) {
  return facts.arch_major >= 9 ? 32u << 20 : 4u << 20;  // NVIDIA's recommendation
}

Key key_of(const Product& p, uint32_t flags, uint64_t workspace) {
  Key key{};
  key.m = p.m;
  key.n = p.n;
  key.k = p.k;
  key.batch = p.batch;
  const Operand* const operands[4] = {&p.a, &p.b, &p.finish.c, &p.d};
  for (size_t i = 0; i < 4; ++i) {
    if (i == 2 && !has_c(p)) continue;
    key.strides[i] = stride_of(*operands[i]);
    key.batch_strides[i] = operands[i]->batch_stride;
    key.alignments[i] = alignment_of(operands[i]->data);
    key.elements[i] = static_cast<uint8_t>(operands[i]->element);
  }
  key.elements[4] = static_cast<uint8_t>(p.finish.bias_element);
  if (p.finish.bias_element != kNoElement) key.alignments[4] = alignment_of(p.finish.bias);
  key.most_workspace = workspace;
  key.flags = static_cast<uint8_t>(flags & OPDOCK_GEMM_TF32);
  key.activation = static_cast<uint8_t>(p.finish.activation);
  key.transposed = static_cast<uint8_t>((p.a.transposed ? 1 : 0) | (p.b.transposed ? 2 : 0));
  key.scaled =
      static_cast<uint8_t>((p.a.scale ? 1 : 0) | (p.b.scale ? 2 : 0) | (p.d.scale ? 4 : 0));
  key.has_c = has_c(p);
  return key;
}

int type_of(int element) {
  switch (element) {
    case kFloat16:
      return kR16F;
    case kBfloat16:
      return kR16BF;
    case kInt8:
      return kR8I;
    case kInt32:
      return kR32I;
    case kE4m3:
      return kR8FE4M3;
    case kE5m2:
      return kR8FE5M2;
    default:
      return kR32F;
  }
}

// The descriptors and the algorithm for a key. The library is column-major, so it gets the operands
// swapped: D' = op(B)' op(A)'. With the order ROW instead, the library has no bias along a row and
// fewer algorithms.
class LtPlan {
 public:
  explicit LtPlan(const Api& api) : api_(api) {}
  ~LtPlan() {
    if (desc_ != nullptr) api_.cublasLtMatmulDescDestroy(desc_);
    for (LtLayout layout : layouts_)
      if (layout != nullptr) api_.cublasLtMatrixLayoutDestroy(layout);
  }
  LtPlan(const LtPlan&) = delete;
  LtPlan& operator=(const LtPlan&) = delete;

  // A plan that cannot be used is kept, too; `result` says why.
  void make(Handle handle, const Product& p, const Key& key) {
    result = describe(p, key);
    if (result == kSuccess) result = choose(handle, key);
  }

  // Only the addresses come from the call; everything else is in the descriptors.
  Result enqueue(Handle handle, const Product& p, void* workspace, LtStream stream) {
    Result done = set_addresses(p);
    if (done != kSuccess) return done;
    const bool integers = is_integer(p);
    const int32_t one = 1, zero = 0;
    const void* const alpha = integers ? static_cast<const void*>(&one) : &p.finish.alpha;
    const void* const beta = integers ? static_cast<const void*>(&zero) : &p.finish.beta;
    void* const d = const_cast<void*>(p.d.data);
    return api_.cublasLtMatmul(handle, desc_, alpha, p.b.data, layouts_[kB], p.a.data, layouts_[kA],
                               beta, has_c(p) ? p.finish.c.data : d, layouts_[kC], d, layouts_[kD],
                               &algo_, workspace, workspace_bytes, stream);
  }

  Result result = kSuccess;
  size_t workspace_bytes = 0;

 private:
  enum { kA, kB, kC, kD };

  template <class T>
  Result set(int attribute, const T& value) {
    return api_.cublasLtMatmulDescSetAttribute(desc_, attribute, &value, sizeof value);
  }
  Result set_addresses(const Product& p) {
    Result done = kSuccess;
    if (p.finish.bias_element != kNoElement) done = set(kBiasPointer, p.finish.bias);
    if (done == kSuccess && p.b.scale != nullptr) done = set(kAScalePointer, p.b.scale);
    if (done == kSuccess && p.a.scale != nullptr) done = set(kBScalePointer, p.a.scale);
    if (done == kSuccess && p.d.scale != nullptr) done = set(kDScalePointer, p.d.scale);
    return done;
  }
  // rows, columns: of the matrix in the product; a transposed matrix is stored with the two
  // swapped.
  Result add(int which, const Operand& x, int64_t rows, int64_t columns, int64_t batch) {
    if (x.transposed) std::swap(rows, columns);
    Result done = api_.cublasLtMatrixLayoutCreate(&layouts_[which], type_of(x.element),
                                                  static_cast<uint64_t>(columns),
                                                  static_cast<uint64_t>(rows), stride_of(x));
    if (done != kSuccess || batch == 1) return done;
    const int32_t count = static_cast<int32_t>(batch);
    done =
        api_.cublasLtMatrixLayoutSetAttribute(layouts_[which], kBatchCount, &count, sizeof count);
    const int64_t offset = x.batch_stride;
    if (done == kSuccess)
      done = api_.cublasLtMatrixLayoutSetAttribute(layouts_[which], kStridedBatchOffset, &offset,
                                                   sizeof offset);
    return done;
  }

  Result describe(const Product& p, const Key& key) {
    const bool integers = is_integer(p);
    const bool tf32 = p.a.element == kFloat32 && (key.flags & OPDOCK_GEMM_TF32) != 0;
    Result done = api_.cublasLtMatmulDescCreate(&desc_,
                                                integers ? kCompute32I
                                                : tf32   ? kCompute32FFastTf32
                                                         : kCompute32F,
                                                integers ? kR32I : kR32F);
    if (done == kSuccess) done = set(kTransA, p.b.transposed ? kOpT : kOpN);
    if (done == kSuccess) done = set(kTransB, p.a.transposed ? kOpT : kOpN);
    uint32_t epilogue = p.finish.bias_element == kNoElement ? 0 : kEpilogueBias;
    if (p.finish.activation == kGeluTanh) epilogue |= kEpilogueGelu;
    if (done == kSuccess && epilogue != 0) done = set(kEpilogue, epilogue);
    if (done == kSuccess) done = set_addresses(p);
    if (done == kSuccess) done = add(kA, p.a, p.m, p.k, p.batch);
    if (done == kSuccess) done = add(kB, p.b, p.k, p.n, p.batch);
    if (done == kSuccess) done = add(kD, p.d, p.m, p.n, p.batch);
    Operand c = has_c(p) ? p.finish.c : p.d;
    if (!has_c(p) && (c.element == kE4m3 || c.element == kE5m2)) c.element = kBfloat16;
    if (done == kSuccess) done = add(kC, c, p.m, p.n, p.batch);
    return done;
  }

  Result choose(Handle handle, const Key& key) {
    Preference preference = nullptr;
    Result done = api_.cublasLtMatmulPreferenceCreate(&preference);
    if (done != kSuccess) return done;
    const auto prefer = [&](int attribute, auto value) {
      if (done == kSuccess)
        done =
            api_.cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value);
    };
    prefer(kMaxWorkspaceBytes, key.most_workspace);
    prefer(kMinAlignmentABytes, uint32_t{key.alignments[1]});
    prefer(kMinAlignmentBBytes, uint32_t{key.alignments[0]});
    prefer(kMinAlignmentCBytes, uint32_t{key.alignments[key.has_c ? 2 : 3]});
    prefer(kMinAlignmentDBytes, uint32_t{key.alignments[3]});
    prefer(kReductionSchemeMask, kReductionInFloat);
    HeuristicResult best{};
    int found = 0;
    if (done == kSuccess)
      done = api_.cublasLtMatmulAlgoGetHeuristic(handle, desc_, layouts_[kB], layouts_[kA],
                                                 layouts_[kC], layouts_[kD], preference, 1, &best,
                                                 &found);
    api_.cublasLtMatmulPreferenceDestroy(preference);
    if (done != kSuccess) return done;
    // An algorithm that needs more workspace than offered would write beyond the end of it.
    const bool is_usable = best.state == kSuccess && best.workspace_bytes <= key.most_workspace;
    if (found < 1 || !is_usable) return kNotSupported;
    algo_ = best.algo;
    workspace_bytes = best.workspace_bytes;
    return kSuccess;
  }

  const Api& api_;
  Desc desc_ = nullptr;
  std::array<LtLayout, 4> layouts_{};
  Algo algo_{};
};

// A library handle for a device, used by one thread at a time, with the plans made for it.
class LtState {
 public:
  LtState(const Api& api, Handle handle) : api_(api), handle_(handle) {}
  const Api& api() const { return api_; }
  Handle handle() const { return handle_; }

  LtPlan* find(const Key& key) const {
    const auto known = plans_.find(key);
    return known == plans_.end() ? nullptr : known->second.get();
  }
  LtPlan* plan(const Key& key, const Product& p) {
    if (LtPlan* const known = find(key)) return known;
    auto made = std::make_unique<LtPlan>(api_);
    made->make(handle_, p, key);
    if (plans_.size() >= kMaxPlans) plans_.clear();
    return (plans_[key] = std::move(made)).get();
  }

 private:
  const Api& api_;
  Handle handle_;
  std::unordered_map<Key, std::unique_ptr<LtPlan>, KeyHash> plans_;
};

std::string name_of(const Api& api, Result result) {
  const char* const name = api.cublasLtGetStatusName(result);
  return (name == nullptr ? "an unknown status" : name) + (" (" + std::to_string(result) + ")");
}

LtState* lt_state(GpuCall* gpu, Reason* why) {
  LtState*& slot = ThreadStates<LtState>::of(gpu->call()->device.index);
  if (slot != nullptr) return slot;
  const Api* const api = open_library(gpu->driver(), why);
  if (api == nullptr) return nullptr;
  if (slot = ThreadStates<LtState>::take_left(gpu->call()->device.index); slot != nullptr)
    return slot;
  Handle handle = nullptr;
  if (const Result made = api->cublasLtCreate(&handle); made != kSuccess) {
    *why = make_reason(Code::kGemmLibraryUnfit, "cublasLtCreate: " + name_of(*api, made),
                       "a cuBLASLt that works with this GPU and driver");
    if (made != kAllocFailed) give_up();
    return nullptr;
  }
  return slot = new LtState(*api, handle);
}

// Returns whether the result means that the library does not support such products. Any other
// result is a failure.
bool declines(Result result) {
  return result == kNotSupported || result == kInvalidValue || result == kArchMismatch;
}

}  // namespace

uint64_t cublaslt_workspace(const opdock_call* call, const Product& p, uint32_t flags) {
  const uint64_t most = most_workspace(*call->facts);
  const LtState* const state = ThreadStates<LtState>::of(call->device.index);
  const LtPlan* const plan = state == nullptr ? nullptr : state->find(key_of(p, flags, most));
  return plan == nullptr ? most : (plan->workspace_bytes + 255) / 256 * 256;
}

bool prepare_cublaslt(GpuCall* gpu, Reason* why) {
  return lt_state(gpu, why) != nullptr;
}

Done run_cublaslt(GpuCall* gpu, const Product& p, uint32_t flags, void* workspace,
                  uint64_t workspace_bytes, Reason* why, opdock_status* status) {
  LtState* const state = lt_state(gpu, why);
  if (state == nullptr) return Done::kDeclined;
  const opdock_call* const call = gpu->call();
  LtPlan* plan = state->plan(key_of(p, flags, most_workspace(*call->facts)), p);
  if (plan->result == kSuccess && plan->workspace_bytes > workspace_bytes)
    plan = state->plan(key_of(p, flags, workspace_bytes), p);
  Result result = plan->result;
  if (result == kSuccess) result = plan->enqueue(state->handle(), p, workspace, call->stream);
  if (result == kSuccess) return Done::kDone;
  const std::string found = "cublasLtMatmul: " + name_of(state->api(), result);
  if (declines(result)) {
    plan->result = result;
    *why = make_reason(Code::kGemmDeclined,
                       found + " for " + std::to_string(p.m) + " x " + std::to_string(p.n) + " x " +
                           std::to_string(p.k),
                       "an algorithm for it");
    return Done::kDeclined;
  }
  *status = call->host->set_error(
      call, OPDOCK_DEVICE_ERROR,
      (found + ", wanted the product enqueued; see the cuBLAS reference for this status").c_str());
  return Done::kFailed;
}

}  // namespace opdock::gemm
