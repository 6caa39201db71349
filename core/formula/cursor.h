// Finds the elements of a row in all tensors of a call.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "formula/space.h"

namespace opdock::formula {

// The positions of a row in all tensors.
class Cursor {
 public:
  Cursor(const Space& space, int64_t row)
      : space_(space), tensors_(space.inputs.size() + space.results.size()) {
    for (size_t t = 0; t < tensors_; ++t) offsets_[t] = 0;
    for (int d = space.ndim - 1; d >= 0; --d) {
      const auto k = static_cast<size_t>(d);
      at_[k] = row % space.size[k];
      row /= space.size[k];
      for (size_t t = 0; t < tensors_; ++t) offsets_[t] += at_[k] * steps(t).stride[k];
    }
  }
  void next() {
    for (int d = space_.ndim - 1; d >= 0; --d) {
      const auto k = static_cast<size_t>(d);
      for (size_t t = 0; t < tensors_; ++t) offsets_[t] += steps(t).stride[k];
      if (++at_[k] < space_.size[k]) return;
      for (size_t t = 0; t < tensors_; ++t) offsets_[t] -= at_[k] * steps(t).stride[k];
      at_[k] = 0;
    }
  }
  // Returns how many rows there are to the end of the innermost dimension, with this one.
  int64_t left() const {
    const auto k = static_cast<size_t>(space_.ndim - 1);
    return space_.ndim == 0 ? 1 : space_.size[k] - at_[k];
  }
  int64_t input(size_t i) const { return offsets_[i]; }
  int64_t result(size_t i) const { return offsets_[space_.inputs.size() + i]; }
  std::span<const int64_t> offsets() const { return {offsets_.data(), tensors_}; }

 private:
  const Steps& steps(size_t t) const {
    const size_t inputs = space_.inputs.size();
    return t < inputs ? space_.inputs[t] : space_.results[t - inputs];
  }
  const Space& space_;
  const size_t tensors_;
  std::array<int64_t, kMaxDims> at_{};
  std::array<int64_t, kMaxInputs + kMaxResults> offsets_;  // of the first tensors_
};

}  // namespace opdock::formula
