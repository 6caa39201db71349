// Decodes groups: all of them, or those that an index chooses.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "groups.cuh"

namespace fp_quantizer {

// Returns the group from which group number `group` of the output comes; -1 if the index is
// outside.
OPDOCK_DEVICE int64_t source_of(const DequantizeParams& p, int64_t group) {
  if (p.index == nullptr) return group;
  const int64_t row = group / p.of_index;
  const int64_t chosen = p.index[row];
  return chosen < 0 || chosen >= p.indexed ? -1 : chosen * p.of_index + (group - row * p.of_index);
}

template <class T, int Bits>
OPDOCK_KERNEL(kThreads)
dequantize(DequantizeParams p) {
  pdl_wait_and_trigger();
  const Team team(p.lane_bits);
  const int64_t step = grid_blocks() * team.count;
  for (int64_t group = block_index() * team.count + team.number; group < p.groups; group += step) {
    const int64_t source = source_of(p, group);
    // A group that is not there becomes NaN: codes of 0 with that scale.
    uint32_t scale_bits = 0x7fffffffu;
    if (source >= 0) {
      const unsigned char* const at = p.scales_at + source * p.scale_stride;
      scale_bits = p.has_floats ? load_unit<4>(at) : load_bytes(at);
    }
    const unsigned char* const codes_at = p.codes_at + (source < 0 ? 0 : source) * p.code_stride;
    T* const out = static_cast<T*>(p.out) + group * p.group;
    for (int64_t begin = 0; begin < p.group; begin += team.span) {
      Word<Bits> codes[kHeld];
      OPDOCK_UNROLL
      for (int i = 0; i < kHeld; ++i) {
        const int64_t element = team.element(begin, i);
        const int inside = source < 0 ? 0 : elements_inside(element, p.group);
        codes[i].clear();
        if (inside > 0) codes[i].load(codes_at + element * Bits / 8, inside, p.has_units);
      }
      const float scale = bits_float(scale_bits);
      OPDOCK_UNROLL
      for (int i = 0; i < kHeld; ++i) {
        const int64_t element = team.element(begin, i);
        const int inside = elements_inside(element, p.group);
        if (inside == 0) continue;
        float value[kElements];
        OPDOCK_UNROLL
        for (int j = 0; j < kElements; ++j)
          value[j] = bits_float(decode(p.codes, codes[i].get(j), Bits)) * scale;
        Packed<T> vector;
        from_floats(value, &vector);
        if (p.is_aligned) {
          store_piece(out + element, vector);
        } else {
          OPDOCK_UNROLL
          for (int j = 0; j < kElements; ++j)
            if (j < inside) out[element + j] = vector.get(j);
        }
      }
    }
  }
}

}  // namespace fp_quantizer
