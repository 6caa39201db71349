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

bool is_ok(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS;
}

cudaDataType_t type_of(int element) {
  switch (element) {
    case kFloat16:
      return CUDA_R_16F;
    case kBfloat16:
      return CUDA_R_16BF;
    case kInt8:
      return CUDA_R_8I;
    case kInt32:
      return CUDA_R_32I;
    case kE4m3:
      return CUDA_R_8F_E4M3;
    case kE5m2:
      return CUDA_R_8F_E5M2;
    default:
      return CUDA_R_32F;
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
    for (cublasLtMatrixLayout_t layout : layouts_)
      if (layout != nullptr) api_.cublasLtMatrixLayoutDestroy(layout);
  }
  LtPlan(const LtPlan&) = delete;
  LtPlan& operator=(const LtPlan&) = delete;

  // A plan that cannot be used is kept, too; `result` says why.
  void make(cublasLtHandle_t handle, const Product& p, const Key& key) {
    result = describe(p, key);
    if (is_ok(result)) result = choose(handle, key);
  }

  // Only the addresses come from the call; everything else is in the descriptors.
  cublasStatus_t enqueue(cublasLtHandle_t handle, const Product& p, void* workspace,
                         cudaStream_t stream) {
    cublasStatus_t done = set_addresses(p);
    if (!is_ok(done)) return done;
    const bool integers = is_integer(p);
    const int32_t one = 1, zero = 0;
    const void* const alpha = integers ? static_cast<const void*>(&one) : &p.finish.alpha;
    const void* const beta = integers ? static_cast<const void*>(&zero) : &p.finish.beta;
    void* const d = const_cast<void*>(p.d.data);
    return api_.cublasLtMatmul(handle, desc_, alpha, p.b.data, layouts_[kB], p.a.data, layouts_[kA],
                               beta, has_c(p) ? p.finish.c.data : d, layouts_[kC], d, layouts_[kD],
                               &algo_, workspace, workspace_bytes, stream);
  }

  cublasStatus_t result = CUBLAS_STATUS_SUCCESS;
  size_t workspace_bytes = 0;

 private:
  enum { kA, kB, kC, kD };

  template <class T>
  cublasStatus_t set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    return api_.cublasLtMatmulDescSetAttribute(desc_, attribute, &value, sizeof value);
  }
  cublasStatus_t set_addresses(const Product& p) {
    cublasStatus_t done = CUBLAS_STATUS_SUCCESS;
    if (p.finish.bias_element != kNoElement)
      done = set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.finish.bias);
    if (is_ok(done) && p.b.scale != nullptr)
      done = set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, p.b.scale);
    if (is_ok(done) && p.a.scale != nullptr)
      done = set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, p.a.scale);
    if (is_ok(done) && p.d.scale != nullptr)
      done = set(CUBLASLT_MATMUL_DESC_D_SCALE_POINTER, p.d.scale);
    return done;
  }
  // rows, columns: of the matrix in the product; a transposed matrix is stored with the two
  // swapped.
  cublasStatus_t add(int which, const Operand& x, int64_t rows, int64_t columns, int64_t batch) {
    if (x.transposed) std::swap(rows, columns);
    cublasStatus_t done = api_.cublasLtMatrixLayoutCreate(
        &layouts_[which], type_of(x.element), static_cast<uint64_t>(columns),
        static_cast<uint64_t>(rows), stride_of(x));
    if (!is_ok(done) || batch == 1) return done;
    const int32_t count = static_cast<int32_t>(batch);
    done = api_.cublasLtMatrixLayoutSetAttribute(
        layouts_[which], CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count);
    const int64_t offset = x.batch_stride;
    if (is_ok(done))
      done = api_.cublasLtMatrixLayoutSetAttribute(
          layouts_[which], CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &offset, sizeof offset);
    return done;
  }

  cublasStatus_t describe(const Product& p, const Key& key) {
    const bool integers = is_integer(p);
    const bool tf32 = p.a.element == kFloat32 && (key.flags & OPDOCK_GEMM_TF32) != 0;
    cublasStatus_t done = api_.cublasLtMatmulDescCreate(&desc_,
                                                        integers ? CUBLAS_COMPUTE_32I
                                                        : tf32   ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                                 : CUBLAS_COMPUTE_32F,
                                                        integers ? CUDA_R_32I : CUDA_R_32F);
    if (is_ok(done))
      done = set(CUBLASLT_MATMUL_DESC_TRANSA, p.b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (is_ok(done))
      done = set(CUBLASLT_MATMUL_DESC_TRANSB, p.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    uint32_t epilogue = 0;
    if (p.finish.bias_element != kNoElement) epilogue |= CUBLASLT_EPILOGUE_BIAS;
    if (p.finish.activation == kGeluTanh) epilogue |= CUBLASLT_EPILOGUE_GELU;
    if (is_ok(done) && epilogue != 0) done = set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    if (is_ok(done)) done = set_addresses(p);
    if (is_ok(done)) done = add(kA, p.a, p.m, p.k, p.batch);
    if (is_ok(done)) done = add(kB, p.b, p.k, p.n, p.batch);
    if (is_ok(done)) done = add(kD, p.d, p.m, p.n, p.batch);
    Operand c = has_c(p) ? p.finish.c : p.d;
    if (!has_c(p) && (c.element == kE4m3 || c.element == kE5m2)) c.element = kBfloat16;
    if (is_ok(done)) done = add(kC, c, p.m, p.n, p.batch);
    return done;
  }

  cublasStatus_t choose(cublasLtHandle_t handle, const Key& key) {
    cublasLtMatmulPreference_t preference = nullptr;
    cublasStatus_t done = api_.cublasLtMatmulPreferenceCreate(&preference);
    if (!is_ok(done)) return done;
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      if (is_ok(done))
        done =
            api_.cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value);
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, key.most_workspace);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, uint32_t{key.alignments[1]});
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, uint32_t{key.alignments[0]});
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, uint32_t{key.alignments[key.has_c ? 2 : 3]});
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, uint32_t{key.alignments[3]});
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
    cublasLtMatmulHeuristicResult_t best{};
    int found = 0;
    if (is_ok(done))
      done = api_.cublasLtMatmulAlgoGetHeuristic(handle, desc_, layouts_[kB], layouts_[kA],
                                                 layouts_[kC], layouts_[kD], preference, 1, &best,
                                                 &found);
    api_.cublasLtMatmulPreferenceDestroy(preference);
    if (!is_ok(done)) return done;
    // An algorithm that needs more workspace than offered would write beyond the end of it.
    const bool is_usable = is_ok(best.state) && best.workspaceSize <= key.most_workspace;
    if (found < 1 || !is_usable) return CUBLAS_STATUS_NOT_SUPPORTED;
    algo_ = best.algo;
    workspace_bytes = best.workspaceSize;
    return CUBLAS_STATUS_SUCCESS;
  }

  const Api& api_;
  cublasLtMatmulDesc_t desc_ = nullptr;
  std::array<cublasLtMatrixLayout_t, 4> layouts_{};
  cublasLtMatmulAlgo_t algo_{};
};

// A library handle for a device, used by one thread at a time, with the plans made for it.
class LtState {
 public:
  LtState(const Api& api, cublasLtHandle_t handle) : api_(api), handle_(handle) {}
  const Api& api() const { return api_; }
  cublasLtHandle_t handle() const { return handle_; }

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
  cublasLtHandle_t handle_;
  std::unordered_map<Key, std::unique_ptr<LtPlan>, KeyHash> plans_;
};

std::string name_of(const Api& api, cublasStatus_t result) {
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
  cublasLtHandle_t handle = nullptr;
  if (const cublasStatus_t made = api->cublasLtCreate(&handle); !is_ok(made)) {
    *why = make_reason(Code::kGemmLibraryUnfit, "cublasLtCreate: " + name_of(*api, made),
                       "a cuBLASLt that works with this GPU and driver");
    if (made != CUBLAS_STATUS_ALLOC_FAILED) give_up();
    return nullptr;
  }
  return slot = new LtState(*api, handle);
}

// Returns whether the result means that the library does not support such products. Any other
// result is a failure.
bool declines(cublasStatus_t result) {
  return result == CUBLAS_STATUS_NOT_SUPPORTED || result == CUBLAS_STATUS_INVALID_VALUE ||
         result == CUBLAS_STATUS_ARCH_MISMATCH;
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
  if (is_ok(plan->result) && plan->workspace_bytes > workspace_bytes)
    plan = state->plan(key_of(p, flags, workspace_bytes), p);
  cublasStatus_t result = plan->result;
  if (is_ok(result)) result = plan->enqueue(state->handle(), p, workspace, call->stream);
  if (is_ok(result)) return Done::kDone;
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
