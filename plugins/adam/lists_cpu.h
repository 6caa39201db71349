// Divides lists of tensors among the CPU's threads.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "lists.h"
#include "steps_cpu.h"

namespace optimizer {

inline Factors factors_of(double value) {
  return {factor_of<float>(value), factor_of<double>(value)};
}

// The dtypes of lists that are not empty.
inline Dtypes dtypes_of(const Lists& lists) {
  return {lists.weights()[0].dtype(), lists.grads[0].dtype(), (*lists.states[0])[0].dtype(),
          lists.params[0].dtype()};
}

inline Arrays arrays_of(const Lists& lists, size_t i) {
  return {lists.weights()[i].raw(),
          lists.grads[i].raw(),
          {(*lists.states[0])[i].raw(),
           lists.states[1] != nullptr ? (*lists.states[1])[i].raw() : nullptr},
          lists.masters ? lists.params[i].raw() : nullptr};
}

// Returns the size of the workspace that update_lists needs.
inline uint64_t workspace_of_lists(const Lists& lists) {
  return lists.params.size() * sizeof(int64_t);
}

// Calls body(arrays, begin, end) on the host's threads for ranges of elements that make up all
// tensors.
template <class Body>
void update_lists(const opdock::Call& call, const Lists& lists, const Body& body) {
  // Waking a CPU thread pays off for about ten microseconds of work.
  constexpr int64_t kGrain = 16384;
  // Within a tensor, threads begin at multiples of this many elements, which fill whole cache
  // lines.
  constexpr int64_t kLine = 64;
  const size_t count = lists.params.size();
  if (count == 0) return;
  // Where each tensor ends if all are counted one after the other.
  int64_t* const ends = static_cast<int64_t*>(call.workspace());
  for (size_t i = 0; i < count; ++i) ends[i] = (i == 0 ? 0 : ends[i - 1]) + lists.params[i].numel();
  call.parallel_for(ends[count - 1], kGrain, [&](int64_t begin, int64_t end) {
    size_t i = static_cast<size_t>(std::upper_bound(ends, ends + count, begin) - ends);
    for (int64_t at = i == 0 ? 0 : ends[i - 1]; at < end; at = ends[i++]) {
      const int64_t numel = ends[i] - at;
      const auto bound = [&](int64_t place) {
        return std::min(numel, (std::max<int64_t>(place - at, 0) + kLine - 1) / kLine * kLine);
      };
      if (bound(begin) < bound(end)) body(arrays_of(lists, i), bound(begin), bound(end));
    }
  });
}

}  // namespace optimizer
