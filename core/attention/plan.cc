// SPDX-License-Identifier: Apache-2.0
#include "attention/plan.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <string_view>

namespace opdock::attention {

using namespace cudnn;

namespace {

constexpr size_t kMaxTensors = kKeptScale;

uint64_t round_up(uint64_t bytes) {
  return (bytes + 255) / 256 * 256;
}

}  // namespace

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

void Plan::make(cudnnHandle_t handle, const Form& form) {
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
    if (!form.adds_in_order())
      d_q_sums_ = room(rows * static_cast<uint64_t>(form.size) * sizeof(float));
  }
  if (form.has_lengths()) lengths_ = room(static_cast<uint64_t>(form.batch) * sizeof(int32_t));
  if (form.has(OPDOCK_ATTENTION_DROPOUT)) seed_ = room(2 * sizeof(int64_t));
  workspace_bytes = at;
}

Status Plan::fill_workspace(Driver* driver, const Form& form, const opdock_attention& what,
                            void* workspace, void* stream) const {
  const bool has_queries = form.has(OPDOCK_ATTENTION_QUERY_LENGTHS);
  const bool lacks_lengths =
      form.has_lengths() && !(has_queries && form.has(OPDOCK_ATTENTION_KEY_LENGTHS));
  if (!lacks_lengths && !form.has(OPDOCK_ATTENTION_DROPOUT)) return {};
  using Fill = int (*)(uint64_t to, uint32_t value, size_t count, void* stream);
  const auto fill = reinterpret_cast<Fill>(driver->symbol("cuMemsetD32Async"));
  int done = fill == nullptr ? -1 : 0;
  const auto put = [&](uint64_t at, int64_t value, int64_t count) {
    if (done == 0)
      done = fill(reinterpret_cast<uint64_t>(workspace) + at, static_cast<uint32_t>(value),
                  static_cast<size_t>(count), stream);
  };
  if (lacks_lengths) put(lengths_, has_queries ? form.keys : form.queries, form.batch);
  if (form.has(OPDOCK_ATTENTION_DROPOUT)) {
    const auto put_wide = [&](uint64_t at, int64_t value) {
      put(at, value, 1);
      put(at + 4, value >> 32, 1);
    };
    if (what.dropout_seed_at == nullptr) put_wide(seed_, what.dropout_seed);
    if (what.dropout_offset_at == nullptr) put_wide(seed_ + 8, what.dropout_offset);
  }
  if (done == 0) return {};
  return {OPDOCK_DEVICE_ERROR, "cuMemsetD32Async: found status " + std::to_string(done) +
                                   ", wanted numbers written; see the driver's manual"};
}

cudnnStatus_t Plan::enqueue(cudnnHandle_t handle, const Form& form, const opdock_attention& what,
                            void* workspace) const {
  const float shift = static_cast<float>(
      form.window - (form.has(OPDOCK_ATTENTION_BOTTOM_RIGHT) ? form.keys - form.queries : 0));
  const Numbers numbers = {what.scale,
                           -std::numeric_limits<float>::infinity(),
                           1.0f,
                           shift,
                           static_cast<int32_t>(form.window),
                           static_cast<int32_t>(form.queries),
                           static_cast<int32_t>(form.keys),
                           static_cast<float>(1 - form.dropout_probability()),
                           static_cast<float>(1 / (1 - form.dropout_probability()))};
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

const void* Plan::address(Uid uid, const opdock_attention& what, const Numbers& numbers,
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
      return (what.flags & OPDOCK_ATTENTION_KEY_LENGTHS) != 0 ? what.key_lengths
                                                              : static_cast<void*>(own + lengths_);
    case kDOut:
      return what.d_out.data;
    case kDQ:
      return what.d_q.data;
    case kDK:
      return what.d_k.data;
    case kDV:
      return what.d_v.data;
    case kSlopes:
      return what.slopes;
    case kDBias:
      return what.d_bias;
    case kSeed:
      return what.dropout_seed_at != nullptr ? what.dropout_seed_at
                                             : static_cast<void*>(own + seed_);
    case kOffset:
      return what.dropout_offset_at != nullptr ? what.dropout_offset_at
                                               : static_cast<void*>(own + seed_ + 8);
    case kQOffsets:
      return what.q_offsets;
    case kKOffsets:
      return what.k_offsets;
    case kVOffsets:
      return what.v_offsets;
    case kOutOffsets:
      return what.out_offsets;
    case kLseOffsets:
      return what.lse_offsets;
    case kKeyTable:
    case kValueTable:
      return what.block_table;
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
    case kKept:
      return &numbers.kept;
    case kKeptScale:
      return &numbers.kept_scale;
    case kFirstVirtual:
      break;
  }
  return nullptr;
}

void Plan::choose(cudnnHandle_t handle, cudnnBackendDescriptor_t graph) {
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

}  // namespace opdock::attention
