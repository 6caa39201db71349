// Parameters of the kernels, on the GPU and on the CPU, filled in by cross_entropy.cc.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/rows.cuh"

namespace cross_entropy {

struct Params {
  const void* logits;
  const void* target;  // one per row: int64 or int32
  const void* scale;   // factor of each row's gradient: float; null: 1
  void* loss;          // one per row: float; null: not wanted
  void* gradient;      // may be logits; null: not wanted
  long long length;    // classes, that is, elements of a row, at least 1
  long long ignore_index;
  float smoothing;  // label_smoothing
  float share;      // 1 / length
  int is_wide;      // target is int64
  opdock::RowShape shape;
  opdock::Rows<5> rows;  // logits, target, scale, loss, gradient

  OPDOCK_HOST_DEVICE long long target_at(long long offset) const {
    return is_wide ? static_cast<const long long*>(target)[offset]
                   : static_cast<const int*>(target)[offset];
  }
};

}  // namespace cross_entropy
