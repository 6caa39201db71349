// SPDX-License-Identifier: Apache-2.0
#include "attention/form.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string>

#include "opdock/types.hpp"

namespace opdock::attention {
namespace {

constexpr int64_t kMost = 0x7fffffff;
constexpr int64_t kAlignment = 16;  // bytes: the library loads vectors and tiles of them
constexpr uint32_t kKnownFlags = 2 * OPDOCK_ATTENTION_PAGED - 1;

Status refuse(opdock_status status, const std::string& part, const std::string& found,
              const std::string& wanted, const std::string& advice) {
  return {status, "attention: " + part + ": found " + found + ", wanted " + wanted + "; " + advice};
}

bool same(opdock_dtype a, uint8_t code, uint8_t bits) {
  return a.code == code && a.bits == bits && a.lanes == 1;
}

Status check_counts(const opdock_attention& what) {
  const struct {
    const char* name;
    int64_t number;
  } counts[] = {{"batch", what.batch},          {"heads", what.heads}, {"kv_heads", what.kv_heads},
                {"queries", what.queries},      {"keys", what.keys},   {"size", what.size},
                {"value_size", what.value_size}};
  for (const auto& [name, number] : counts) {
    if (number >= 1 && number <= kMost) continue;
    return refuse(OPDOCK_INVALID_ARGUMENT, name, std::to_string(number),
                  "1 to " + std::to_string(kMost), "skip empty calls");
  }
  if (what.heads % what.kv_heads != 0) {
    return refuse(OPDOCK_INVALID_ARGUMENT, "kv_heads", std::to_string(what.kv_heads),
                  "a divisor of the " + std::to_string(what.heads) + " heads", "correct it");
  }
  if (what.window < 0 || what.window > kMost) {
    return refuse(OPDOCK_INVALID_ARGUMENT, "window", std::to_string(what.window),
                  "0 to " + std::to_string(kMost), "correct it");
  }
  const auto flag = [&](uint32_t one) { return (what.flags & one) != 0; };
  if (flag(OPDOCK_ATTENTION_DROPOUT) && !(what.dropout > 0 && what.dropout < 1)) {
    return refuse(OPDOCK_INVALID_ARGUMENT, "dropout", std::to_string(what.dropout),
                  "more than 0 and less than 1", "leave out the flag for 0");
  }
  if (flag(OPDOCK_ATTENTION_BIAS_GRADIENT) &&
      (what.bias_dtype.bits == 0 || !flag(OPDOCK_ATTENTION_BACKWARD))) {
    return refuse(OPDOCK_INVALID_ARGUMENT, "flags", "BIAS_GRADIENT without a bias or BACKWARD",
                  "both", "correct it");
  }
  const bool has_lengths =
      flag(OPDOCK_ATTENTION_QUERY_LENGTHS) && flag(OPDOCK_ATTENTION_KEY_LENGTHS);
  if (flag(OPDOCK_ATTENTION_RAGGED | OPDOCK_ATTENTION_PAGED) && !has_lengths) {
    return refuse(OPDOCK_INVALID_ARGUMENT, "flags", "RAGGED or PAGED without lengths",
                  "QUERY_LENGTHS and KEY_LENGTHS", "pass the rows' lengths");
  }
  if (flag(OPDOCK_ATTENTION_PAGED)) {
    const bool is_known = what.block_size >= 1 && what.block_size <= kMost && what.blocks >= 1 &&
                          what.blocks <= kMost;
    if (!is_known) {
      return refuse(OPDOCK_INVALID_ARGUMENT, "block_size and blocks",
                    std::to_string(what.block_size) + " and " + std::to_string(what.blocks),
                    "1 to " + std::to_string(kMost), "correct them");
    }
  }
  if (const uint32_t unknown = what.flags & ~kKnownFlags; unknown != 0) {
    return refuse(OPDOCK_UNSUPPORTED, "flags", std::to_string(unknown),
                  "flags that this host's version of attention.h has",
                  "use a kernel of the plugin's own, or a newer Opdock");
  }
  if (!std::isfinite(what.scale)) {
    return refuse(OPDOCK_INVALID_ARGUMENT, "scale", std::to_string(what.scale), "a finite number",
                  "correct it");
  }
  return {};
}

// Copies the strides, without those of dimensions of one element, which do not matter. Returns
// whether the addresses of all heads are aligned. counts: rows or blocks, heads, tokens.
bool take(const opdock_attention_heads& x, const std::array<int64_t, 3>& counts, int64_t size,
          bool is_ragged, int64_t* strides) {
  const int64_t given[3] = {x.row_stride, x.head_stride, x.token_stride};
  uint64_t low = reinterpret_cast<uintptr_t>(x.data);
  int64_t packed = size;
  for (size_t i = 3; i-- > 0;) {
    // Ragged rows begin where their offsets say, which are whole tokens.
    if (i == 0 && is_ragged)
      strides[i] = strides[2] * counts[2];
    else
      strides[i] = counts[i] > 1 ? given[i] : packed;
    packed = strides[i] * counts[i];
    low |= static_cast<uint64_t>(strides[i]) * 2;
  }
  return low % kAlignment == 0;
}

}  // namespace

const opdock_attention* read_attention(const opdock_attention* what, opdock_attention* room,
                                       Status* problem) {
  if (what == nullptr || !OPDOCK_HAS(what, opdock_attention, bias_strides)) {
    *problem = refuse(OPDOCK_INTERNAL, "struct_size",
                      what == nullptr ? "no struct" : std::to_string(what->struct_size),
                      "at least " + std::to_string(offsetof(opdock_attention, slopes)),
                      "set it to sizeof(opdock_attention)");
    return nullptr;
  }
  if (what->struct_size == sizeof *room) return what;
  *room = {};
  std::memcpy(room, what, std::min<size_t>(what->struct_size, sizeof *room));
  room->struct_size = sizeof *room;
  return room;
}

Status form_of(const opdock_attention& what, Form* out) {
  const bool is_half = same(what.dtype, OPDOCK_DTYPE_FLOAT, 16);
  if (!is_half && !same(what.dtype, OPDOCK_DTYPE_BFLOAT, 16)) {
    return refuse(OPDOCK_UNSUPPORTED, "dtype", Dtype(what.dtype).name(), "float16 or bfloat16",
                  "use a kernel of the plugin's own");
  }
  if (Status counted = check_counts(what); !counted.ok()) return counted;
  *out = {};
  out->batch = what.batch;
  out->heads = what.heads;
  out->kv_heads = what.kv_heads;
  out->queries = what.queries;
  out->keys = what.keys;
  out->size = what.size;
  out->value_size = what.value_size;
  out->window = what.window >= what.keys + what.queries ? 0 : what.window;
  out->flags = what.flags;
  out->is_half = is_half;
  const bool backward = out->has(OPDOCK_ATTENTION_BACKWARD);
  // The alignments are the same if every row has as many queries as keys.
  const bool square = what.queries == what.keys && !out->has_lengths();
  if (square || (what.window == 0 && !out->has(OPDOCK_ATTENTION_CAUSAL)))
    out->flags &= ~OPDOCK_ATTENTION_BOTTOM_RIGHT;
  if (backward) {
    out->flags |= OPDOCK_ATTENTION_LSE;
  } else {
    out->flags &= ~OPDOCK_ATTENTION_DETERMINISTIC;  // forward always is
  }
  const bool ragged = out->has(OPDOCK_ATTENTION_RAGGED), paged = out->has(OPDOCK_ATTENTION_PAGED);
  const auto queries = [&](const opdock_attention_heads& x, int64_t size, int64_t* strides) {
    return take(x, {what.batch, what.heads, what.queries}, size, ragged, strides);
  };
  const auto keys = [&](const opdock_attention_heads& x, int64_t size, int64_t* strides) {
    return paged ? take(x, {what.blocks, what.kv_heads, what.block_size}, size, false, strides)
                 : take(x, {what.batch, what.kv_heads, what.keys}, size, ragged, strides);
  };
  bool aligned = queries(what.q, what.size, out->q);
  aligned &= keys(what.k, what.size, out->k);
  aligned &= keys(what.v, what.value_size, out->v);
  aligned &= queries(what.out, what.value_size, out->out);
  out->has_aligned_gradients = 1;
  if (backward) {
    bool gradients = queries(what.d_out, what.value_size, out->d_out);
    gradients &= queries(what.d_q, what.size, out->d_q);
    gradients &= keys(what.d_k, what.size, out->d_k);
    gradients &= keys(what.d_v, what.value_size, out->d_v);
    if (out->has(OPDOCK_ATTENTION_BIAS_GRADIENT))
      gradients &= reinterpret_cast<uintptr_t>(what.d_bias) % kAlignment == 0;
    out->has_aligned_gradients = gradients;
  }
  if (out->has(OPDOCK_ATTENTION_SLOPES))
    aligned &= reinterpret_cast<uintptr_t>(what.slopes) % kAlignment == 0;
  if (out->has(OPDOCK_ATTENTION_DROPOUT)) out->dropout = std::bit_cast<uint32_t>(what.dropout);
  if (ragged && what.lse_offsets != nullptr) {
    out->lse[0] = what.lse_strides[0];
    out->lse[1] = what.lse_strides[1];
  }
  if (paged) {
    out->block_size = what.block_size;
    out->blocks = what.blocks;
    out->table_stride = what.table_stride;
  }
  if (what.bias_dtype.bits != 0) {
    const bool is_float = same(what.bias_dtype, OPDOCK_DTYPE_FLOAT, 32);
    if (!is_float && std::memcmp(&what.bias_dtype, &what.dtype, sizeof what.dtype) != 0) {
      return refuse(OPDOCK_UNSUPPORTED, "bias_dtype", Dtype(what.bias_dtype).name(),
                    "float32 or " + Dtype(what.dtype).name(), "convert the bias");
    }
    out->bias = is_float ? kBiasFloat32 : kBiasLikeQ;
    uint64_t low = reinterpret_cast<uintptr_t>(what.bias);
    for (int i = 0; i < 4; ++i) {
      out->bias_strides[i] = what.bias_strides[i];
      if (i < 3) low |= static_cast<uint64_t>(what.bias_strides[i]) * (is_float ? 4 : 2);
    }
    aligned &= low % kAlignment == 0;
  }
  out->is_aligned = aligned;
  return {};
}

const char* missing_address(const opdock_attention& what) {
  const auto has = [&](uint32_t flag) { return (what.flags & flag) != 0; };
  const bool backward = has(OPDOCK_ATTENTION_BACKWARD);
  const struct {
    const char* name;
    const void* address;
    bool is_needed;
  } all[] = {
      {"q.data", what.q.data, true},
      {"k.data", what.k.data, true},
      {"v.data", what.v.data, true},
      {"out.data", what.out.data, true},
      {"d_out.data", what.d_out.data, backward},
      {"d_q.data", what.d_q.data, backward},
      {"d_k.data", what.d_k.data, backward},
      {"d_v.data", what.d_v.data, backward},
      {"lse", what.lse, backward || has(OPDOCK_ATTENTION_LSE)},
      {"query_lengths", what.query_lengths, has(OPDOCK_ATTENTION_QUERY_LENGTHS)},
      {"key_lengths", what.key_lengths, has(OPDOCK_ATTENTION_KEY_LENGTHS)},
      {"bias", what.bias, what.bias_dtype.bits != 0},
      {"slopes", what.slopes, has(OPDOCK_ATTENTION_SLOPES)},
      {"d_bias", what.d_bias, has(OPDOCK_ATTENTION_BIAS_GRADIENT)},
      {"q_offsets", what.q_offsets, has(OPDOCK_ATTENTION_RAGGED)},
      {"k_offsets", what.k_offsets, has(OPDOCK_ATTENTION_RAGGED)},
      {"v_offsets", what.v_offsets, has(OPDOCK_ATTENTION_RAGGED)},
      {"out_offsets", what.out_offsets, has(OPDOCK_ATTENTION_RAGGED)},
      {"block_table", what.block_table, has(OPDOCK_ATTENTION_PAGED)},
  };
  for (const auto& [name, address, is_needed] : all)
    if (is_needed && address == nullptr) return name;
  return nullptr;
}

std::optional<Reason> known_refusal(const Form& form, uint32_t arch_major, uint32_t arch_minor) {
  const auto refusal = [](std::string found, std::string wanted) {
    return make_reason(Code::kAttentionDeclined, std::move(found), std::move(wanted));
  };
  // A forward with dropout is declined for what its backward would be declined for.
  const bool dropout = form.has(OPDOCK_ATTENTION_DROPOUT);
  const bool backward = form.has(OPDOCK_ATTENTION_BACKWARD) || dropout;
  const bool slopes = form.has(OPDOCK_ATTENTION_SLOPES);
  const bool bottom_right = form.has(OPDOCK_ATTENTION_BOTTOM_RIGHT);
  if (arch_major < 8) {
    return refusal("a GPU of compute capability " + std::to_string(arch_major) + "." +
                       std::to_string(arch_minor),
                   "8.0 or newer");
  }
  if (form.size % 8 != 0 || form.value_size % 8 != 0) {
    return refusal("heads of " + std::to_string(form.size) + " and " +
                       std::to_string(form.value_size) + " elements",
                   "multiples of 8");
  }
  const int64_t most = backward ? (arch_major == 9 ? 256 : 128) : kMost;
  if (form.size > most || form.value_size > most) {
    return refusal("gradients of heads of " + std::to_string(std::max(form.size, form.value_size)) +
                       " elements",
                   std::to_string(most) + " at most on this GPU");
  }
  if (form.is_aligned == 0 || form.has_aligned_gradients == 0) {
    return refusal("an address or a stride that is no multiple of 16 bytes",
                   "heads and rows of the bias aligned to 16 bytes");
  }
  if (form.bias != kNoBias && form.bias_strides[3] != 1)
    return refusal("a bias with gaps between its elements", "stride 1 in its last dimension");
  // cuDNN 9.19 gives wrong gradients for such a bias.
  if (form.bias != kNoBias && form.queries > 1 && form.bias_strides[2] == 0)
    return refusal("a bias that is the same for every query", "lengths, or a bias for each query");
  if (bottom_right && form.bias != kNoBias)
    return refusal("a bias beside the last query at the last key", "one of the two");
  if (form.bias != kNoBias && dropout) return refusal("dropout beside a bias", "one of the two");
  if (bottom_right && (slopes || dropout)) {
    return refusal("slopes or dropout beside the last query at the last key",
                   "as many queries as keys");
  }
  if (slopes && !form.has(OPDOCK_ATTENTION_CAUSAL))
    return refusal("slopes without the flag CAUSAL", "CAUSAL beside SLOPES");
  if (form.has(OPDOCK_ATTENTION_BIAS_GRADIENT)) {
    // NVIDIA's own tests go through this kind of bias alone.
    const bool is_tested = form.bias == kBiasLikeQ && form.bias_strides[1] != 0 &&
                           (form.bias_strides[0] == 0 || form.batch == 1);
    if (!is_tested) {
      return refusal(
          "a gradient of a bias that each row of the batch has, that heads share, or in "
          "float32",
          "a bias of one for all rows and each head, in the dtype of q");
    }
  }
  if (form.has(OPDOCK_ATTENTION_RAGGED)) {
    if (arch_major < 9)
      return refusal("ragged rows on this GPU", "compute capability 9.0 or newer");
    if (form.bias != kNoBias) return refusal("a bias of ragged rows", "one of the two");
    if (form.has(OPDOCK_ATTENTION_DETERMINISTIC) && arch_major >= 12)
      return refusal("deterministic gradients of ragged rows on this GPU", "another GPU");
    const auto lie_alike = [](const int64_t* a, const int64_t* b) {
      return a[1] == b[1] && a[2] == b[2];
    };
    const bool alike = lie_alike(form.q, form.d_q) && lie_alike(form.k, form.d_k) &&
                       lie_alike(form.v, form.d_v) && lie_alike(form.out, form.d_out);
    if (form.has(OPDOCK_ATTENTION_BACKWARD) && !alike)
      return refusal("gradients of ragged rows with strides of their own", "those of the tensors");
  }
  if (form.has(OPDOCK_ATTENTION_PAGED)) {
    if (form.has(OPDOCK_ATTENTION_BACKWARD | OPDOCK_ATTENTION_RAGGED))
      return refusal("keys in blocks beside ragged rows or backward", "one of the two");
    if (form.bias != kNoBias || slopes || dropout)
      return refusal("keys in blocks beside a bias, slopes or dropout", "one of the two");
  }
  if ((bottom_right || form.window != 0) && !form.has_lengths() && form.queries > form.keys) {
    return refusal(std::to_string(form.queries) + " queries of " + std::to_string(form.keys) +
                       " keys with a window or the last query at the last key",
                   "no more queries than keys");
  }
  if (backward && form.queries == 1 && form.keys == 1)
    return refusal("gradients of one query and one key", "more of one of them");
  if (form.has(OPDOCK_ATTENTION_DETERMINISTIC) && arch_major >= 10)
    return refusal("deterministic gradients on this GPU", "an architecture below 10.0");
  return std::nullopt;
}

Form forward_of(const Form& form) {
  Form forward = form;
  forward.flags &= ~(OPDOCK_ATTENTION_BACKWARD | OPDOCK_ATTENTION_DETERMINISTIC |
                     OPDOCK_ATTENTION_BIAS_GRADIENT);
  for (int64_t* strides : {forward.d_out, forward.d_q, forward.d_k, forward.d_v})
    std::fill(strides, strides + 3, 0);
  forward.has_aligned_gradients = 1;
  return forward;
}

}  // namespace opdock::attention
