// opdock/overlap.hpp: decides exactly whether strided views share memory, for the host's checks of
// what an op writes and for plugins. C++17, header-only.
// SPDX-License-Identifier: Apache-2.0
#ifndef OPDOCK_OVERLAP_HPP_
#define OPDOCK_OVERLAP_HPP_

#include <cstdint>

#include "opdock/plugin.h"

namespace opdock::views {

// kUndecided: the search would take too many steps (three or more strides, none of which is a
// multiple of another). To be safe, treat it as kShared.
enum class Overlap : uint8_t { kNone, kShared, kUndecided };

// The address range [low, high) in which all elements of a tensor lie; low == high if it has none.
struct Extent {
  uintptr_t low;
  uintptr_t high;
};

inline uint64_t element_bytes(opdock_dtype dtype) {
  return (static_cast<uint64_t>(dtype.bits) * dtype.lanes + 7) / 8;
}

inline bool has_elements(int32_t ndim, const int64_t* shape) {
  for (int32_t i = 0; i < ndim; ++i) {
    if (shape[i] == 0) return false;
  }
  return true;
}

namespace detail {

inline uint64_t magnitude(int64_t stride) {
  return stride < 0 ? uint64_t{0} - static_cast<uint64_t>(stride) : static_cast<uint64_t>(stride);
}

// The multiples 0, size, …, most * size.
struct Multiples {
  uint64_t size;
  uint64_t most;
};

constexpr uint64_t kNever = UINT64_MAX;

// Returns the smallest j for which j * step mod modulus lies in [low, high], or kNever, by Euclid's
// algorithm on the interval. step < modulus, low <= high < modulus.
inline uint64_t first_within(uint64_t step, uint64_t modulus, uint64_t low, uint64_t high) {
  __extension__ typedef unsigned __int128 Wide;
  if (low == 0) return 0;
  if (step > modulus - step) {  // the step backwards is shorter
    const uint64_t last = modulus - low;
    low = modulus - high;
    high = last;
    step = modulus - step;
  }
  if (step == 0) return kNever;
  const uint64_t turn = (low - 1) / step + 1;
  if (turn * step <= high) return turn;
  // No multiple of the step lies in the interval in the first round of the modulus, so find the
  // first round in which one does.
  const uint64_t rounds =
      first_within((step - modulus % step) % step, step, low % step, high % step);
  if (rounds == kNever) return kNever;
  return static_cast<uint64_t>((Wide{modulus} * rounds + low - 1) / step + 1);
}

// The sums of one number of each of several Multiples and an offset from 0 to a limit.
class Sums {
 public:
  explicit Sums(uint64_t offset_limit) : offsets_(offset_limit) {}

  // The largest sum must stay below 2^64.
  void add(uint64_t size, uint64_t most) {
    if (size == 0 || most == 0) return;
    int at = count_++;
    for (; at > 0 && sorted_[at - 1].size > size; --at) sorted_[at] = sorted_[at - 1];
    sorted_[at] = {size, most};
  }

  // Returns whether one of the sums is `target`. Call it only once.
  Overlap contain(uint64_t target) {
    merge();
    uint64_t divisor = 0;
    reach_[0] = offsets_;
    for (int i = 0; i < count_; ++i) {
      for (uint64_t rest = sorted_[i].size; rest != 0;) {
        const uint64_t next = divisor % rest;
        divisor = rest;
        rest = next;
      }
      divisor_[i + 1] = divisor;
      reach_[i + 1] = reach_[i] + sorted_[i].size * sorted_[i].most;
    }
    return search(count_, target);
  }

 private:
  static constexpr int kMaxSteps = 1000;

  // Merges multiples that continue smaller ones without a gap: a contiguous tensor becomes only a
  // range of offsets.
  void merge() {
    int kept = 0;
    for (int i = 0; i < count_; ++i) {
      const Multiples next = sorted_[i];
      if (next.size <= offsets_ + 1) {
        offsets_ += next.size * next.most;
      } else if (kept > 0 && next.size % sorted_[kept - 1].size == 0 &&
                 next.size / sorted_[kept - 1].size <= sorted_[kept - 1].most + 1) {
        sorted_[kept - 1].most += next.size / sorted_[kept - 1].size * next.most;
      } else {
        sorted_[kept++] = next;
      }
    }
    count_ = kept;
  }

  // Searches the sums of only the `count` smallest multiples. It tries the numbers of the largest
  // one first: where strides are nested, as those of slices are, few of them leave a rest within
  // reach of the others.
  Overlap search(int count, uint64_t target) {
    if (target > reach_[count]) return Overlap::kNone;
    if (count == 0) return Overlap::kShared;
    if (target % divisor_[count] > offsets_) return Overlap::kNone;
    const Multiples last = sorted_[count - 1];
    const uint64_t rest = reach_[count - 1];
    const uint64_t fewest = target > rest ? (target - rest - 1) / last.size + 1 : 0;
    uint64_t most = target / last.size;
    if (most > last.most) most = last.most;
    if (fewest > most) return Overlap::kNone;
    if (count == 1) return Overlap::kShared;
    if (count == 2) {
      const uint64_t size = sorted_[0].size;
      const uint64_t left = (target - most * last.size) % size;
      if (left <= offsets_) return Overlap::kShared;
      const uint64_t fewer =
          first_within(last.size % size, size, size - left, size - left + offsets_);
      return fewer <= most - fewest ? Overlap::kShared : Overlap::kNone;
    }
    for (uint64_t number = most;; --number) {
      if (++steps_ > kMaxSteps) return Overlap::kUndecided;
      const Overlap found = search(count - 1, target - number * last.size);
      if (found != Overlap::kNone) return found;
      if (number == fewest) return Overlap::kNone;
    }
  }

  Multiples sorted_[2 * OPDOCK_MAX_NDIM + 1];
  uint64_t reach_[2 * OPDOCK_MAX_NDIM + 2];    // [i]: the largest sum of the i smallest
  uint64_t divisor_[2 * OPDOCK_MAX_NDIM + 2];  // [i]: the greatest common divisor of these
  uint64_t offsets_;
  int count_ = 0;
  int steps_ = 0;
};

inline void add_dimensions(const opdock_tensor& x, Sums* sums) {
  const uint64_t bytes = element_bytes(x.dtype);
  for (int32_t i = 0; i < x.ndim; ++i) {
    sums->add(magnitude(x.strides[i]) * bytes, static_cast<uint64_t>(x.shape[i] - 1));
  }
}

}  // namespace detail

// Returns the extent of a tensor as the host passes it.
inline Extent extent_of(const opdock_tensor& x) {
  const uintptr_t first =
      reinterpret_cast<uintptr_t>(x.data) + static_cast<uintptr_t>(x.byte_offset);
  const uint64_t bytes = element_bytes(x.dtype);
  Extent extent{first, first + bytes};
  bool empty = false;
  for (int32_t i = 0; i < x.ndim; ++i) {
    empty = empty || x.shape[i] == 0;
    // Unsigned, because the sizes and strides of an empty tensor may be too large.
    const uint64_t reach =
        static_cast<uint64_t>(x.shape[i] - 1) * detail::magnitude(x.strides[i]) * bytes;
    if (x.strides[i] < 0) {
      extent.low -= reach;
    } else {
      extent.high += reach;
    }
  }
  return empty ? Extent{first, first} : extent;
}

// Returns whether two extents have a byte in common; an empty one has none.
inline bool overlap(const Extent& a, const Extent& b) {
  return a.low < b.high && b.low < a.high && a.low < a.high && b.low < b.high;
}

// Returns whether a byte belongs to elements of both tensors, which have these extents.
inline Overlap shared_memory(const opdock_tensor& a, const Extent& a_extent, const opdock_tensor& b,
                             const Extent& b_extent) {
  if (!overlap(a_extent, b_extent)) return Overlap::kNone;
  // With the magnitudes of the strides, a byte of `a` is at low + Σ i_k * stride_k + offset, and a
  // byte of `b`, from its other end, at high - 1 - (a sum of the same form). They are the same byte
  // if the two sums together are the distance.
  detail::Sums sums(element_bytes(a.dtype) + element_bytes(b.dtype) - 2);
  detail::add_dimensions(a, &sums);
  detail::add_dimensions(b, &sums);
  return sums.contain(b_extent.high - 1 - a_extent.low);
}

inline Overlap shared_memory(const opdock_tensor& a, const opdock_tensor& b) {
  return shared_memory(a, extent_of(a), b, extent_of(b));
}

// Returns whether two elements of a tensor with these sizes and strides have one address.
inline Overlap shared_elements(int32_t ndim, const int64_t* shape, const int64_t* strides) {
  if (!has_elements(ndim, shape)) return Overlap::kNone;
  int64_t dense = 1;  // fast path: most tensors are contiguous
  int32_t left = ndim;
  for (; left > 0 && (shape[left - 1] == 1 || strides[left - 1] == dense); --left) {
    dense *= shape[left - 1];
  }
  if (left == 0) return Overlap::kNone;
  detail::Multiples sorted[OPDOCK_MAX_NDIM];
  int count = 0;
  for (int32_t i = 0; i < ndim; ++i) {
    if (shape[i] == 1) continue;
    const uint64_t size = detail::magnitude(strides[i]);
    int at = count++;
    for (; at > 0 && sorted[at - 1].size > size; --at) sorted[at] = sorted[at - 1];
    sorted[at] = {size, static_cast<uint64_t>(shape[i] - 1)};
  }
  uint64_t reach = 0;
  for (int k = 0; k < count; ++k) {
    const detail::Multiples& one = sorted[k];
    if (one.size == 0) return Overlap::kShared;
    // Two elements that differ by 1 or more in this dimension, and not in larger ones, have one
    // address if the smaller dimensions compensate; in each of these, two elements can differ by
    // `most` in either direction.
    if (one.size <= reach) {
      detail::Sums sums(0);
      for (int j = 0; j < k; ++j) sums.add(sorted[j].size, 2 * sorted[j].most);
      sums.add(one.size, one.most - 1);
      const Overlap found = sums.contain(reach - one.size);
      if (found != Overlap::kNone) return found;
    }
    reach += one.size * one.most;
  }
  return Overlap::kNone;
}

}  // namespace opdock::views
#endif  // OPDOCK_OVERLAP_HPP_
