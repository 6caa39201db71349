// Finds out which of many tensors shares memory with one that is written.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "opdock/overlap.hpp"

namespace opdock {

// One of the tensors to compare. It has been checked, and it has elements and data. No member has a
// default value: every call has an array of views on its stack, all of which would be written.
struct View {
  enum Role : uint16_t { kRead, kWritten, kOutput };  // an output is written, too

  views::Extent extent;
  const opdock_tensor* tensor;
  uint32_t index;  // the caller's number for it
  Role role;
  bool is_apart;  // no output may be this very tensor
};

struct MemoryConflict {
  uint32_t first, second;  // indices, the smaller one first
  views::Overlap overlap;  // kShared or kUndecided
};

// Finds two views that share memory and of which at least one is written; nullopt if there are
// none. in_place: a view that is not an output may be identical to another one, unless one of the
// two is_apart. Sorts the views by address, so that it compares only views whose extents overlap
// and, among many views whose rows interleave, only those that overlap within a row.
std::optional<MemoryConflict> find_conflict(const View* all, size_t count, bool in_place);

}  // namespace opdock
