// Which of many tensors shares memory with one that is written.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "opdock/overlap.hpp"

namespace opdock {

// A tensor (checked) with elements and data, among others.
struct View {
  enum Role : uint32_t { kRead, kWritten, kOutput };  // kOutput is written too

  views::Extent extent;
  const opdock_tensor* tensor;
  uint32_t index;  // the caller's number for it
  Role role;
};

struct Clash {
  uint32_t first, second;  // indices, the smaller one first
  views::Overlap overlap;  // kShared or kUndecided
};

// A pair of the views that share memory of which at least one is written, or nullopt. in_place: a
// view that is no output may be the very same as another one. In the order of addresses, so that
// only those are compared whose extents overlap, and of many whose rows interleave those that do
// within a row.
std::optional<Clash> find_clash(const View* all, size_t count, bool in_place);

}  // namespace opdock
