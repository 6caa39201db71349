// A key of the plans: everything by which the graphs of two attentions may differ.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <type_traits>

#include "base/reason.h"
#include "base/status.h"
#include "opdock/attention.h"

namespace opdock::attention {

enum : uint8_t { kNoBias, kBiasFloat32, kBiasLikeQ };

// Compared and hashed as bytes, so it must have no padding. Strides are those of row, head, token.
struct Form {
  int64_t batch, heads, kv_heads, queries, keys, size, value_size, window;
  int64_t q[3], k[3], v[3], out[3], d_out[3], d_q[3], d_k[3], d_v[3];
  int64_t bias_strides[4];
  int64_t lse[2];                            // RAGGED: strides of head and token; 0: as without it
  int64_t block_size, blocks, table_stride;  // PAGED
  uint32_t flags;                            // OPDOCK_ATTENTION_…
  uint32_t dropout;                          // DROPOUT: the bits of the probability
  uint8_t is_half;                           // float16, else bfloat16
  uint8_t bias;                              // kNoBias, …
  // All addresses and strides, of the bias and the slopes too, to 16 bytes; those of the gradients
  // apart.
  uint8_t is_aligned, has_aligned_gradients;
  uint32_t unused;

  bool has(uint32_t flag) const { return (flags & flag) != 0; }
  bool has_lengths() const {
    return has(OPDOCK_ATTENTION_QUERY_LENGTHS | OPDOCK_ATTENTION_KEY_LENGTHS);
  }
  // Each query's sums are added up at once, and not by blocks of keys in any order.
  bool adds_in_order() const {
    return has(OPDOCK_ATTENTION_DETERMINISTIC | OPDOCK_ATTENTION_BIAS_GRADIENT);
  }
  double dropout_probability() const { return static_cast<double>(std::bit_cast<float>(dropout)); }
  bool operator==(const Form& other) const { return std::memcmp(this, &other, sizeof *this) == 0; }
};
static_assert(std::has_unique_object_representations_v<Form>);

struct FormHash {
  size_t operator()(const Form& form) const {
    uint64_t words[sizeof(Form) / 8];
    static_assert(sizeof words == sizeof form);
    std::memcpy(words, &form, sizeof words);
    uint64_t hash = 0;
    for (const uint64_t word : words) hash = (std::rotl(hash, 23) ^ word) * 0x9e3779b97f4a7c15u;
    return static_cast<size_t>(hash ^ hash >> 32);
  }
};

// Returns `what`, or a copy in *room if it has another size than this header's: an older plugin's
// has fewer members. NULL and *problem if it lacks some that always were there.
const opdock_attention* read_attention(const opdock_attention* what, opdock_attention* room,
                                       Status* problem);
// Writes the form. Fails if the struct contradicts itself (OPDOCK_INVALID_ARGUMENT) or has another
// dtype (OPDOCK_UNSUPPORTED).
Status form_of(const opdock_attention& what, Form* out);
// Returns the name of an address that is NULL and needed to run, or NULL.
const char* missing_address(const opdock_attention& what);

// Returns why the library does not serve the form, if that is known without asking it. Its rules
// are those of cuDNN's own frontend for its versions since kLeastVersion.
std::optional<Reason> known_refusal(const Form& form, uint32_t arch_major, uint32_t arch_minor);
// Returns the forward whose gradients a backward form computes.
Form forward_of(const Form& form);

// Older versions give wrong gradients for some numbers of keys unless their graphs have a
// work-around, and lack some masks.
inline constexpr size_t kLeastVersion = 91501;

}  // namespace opdock::attention
