// SPDX-License-Identifier: Apache-2.0
#include "call/accept.h"

#include "call/tensor_check.h"

namespace opdock {
namespace {

// Returns whether `x` has memory, shape and strides, elements of at most 16 bytes, and non-negative
// sizes and strides below 2^27. Over 16 dimensions the bytes from its first to its last element
// then stay below 2^62, so only the number of elements, which strides of 0 let grow, may overflow.
// Does not look at its device.
inline bool is_plain(const opdock_tensor& x) {
  const int64_t* const shape = x.shape;
  const int64_t* const strides = x.strides;
  const uint32_t ndim = static_cast<uint32_t>(x.ndim);
  const uint64_t bytes = element_bytes(x.dtype);
  if (ndim > OPDOCK_MAX_NDIM || x.data == nullptr || shape == nullptr || strides == nullptr ||
      bytes - 1 > 15) {
    return false;
  }
  int64_t count = static_cast<int64_t>(bytes);
  uint64_t all = 0;
#pragma GCC unroll 1
  for (uint32_t i = 0; i < ndim; ++i) {
    all |= static_cast<uint64_t>(shape[i]) | static_cast<uint64_t>(strides[i]);
    if (__builtin_mul_overflow(count, shape[i], &count)) return false;
  }
  return all < uint64_t{1} << 27;
}

}  // namespace

Target* accept_arguments(const opdock_function& function, const opdock_value* args,
                         uint32_t num_args) {
  if (num_args != function.num_params() || args == nullptr) return nullptr;
  const uint32_t* tags = function.quick_tags();
  const opdock_tensor* first = nullptr;
  for (uint32_t i = 0; i < num_args; ++i) {
    const opdock_value& value = args[i];
    if (value.tag == OPDOCK_TAG_TENSOR) {
      const opdock_tensor* x = value.as.tensor;
      if ((tags[i] & 1u << OPDOCK_TAG_TENSOR) == 0 || x == nullptr ||
          (value.flags & OPDOCK_VALUE_NO_DATA) != 0 || !is_plain(*x)) {
        return nullptr;
      }
      if (first == nullptr) {
        first = x;
      } else if (x->device.type != first->device.type || x->device.index != first->device.index) {
        return nullptr;
      }
    } else if (value.tag > OPDOCK_TAG_LIST || (tags[i] >> value.tag & 1) == 0 ||
               (value.tag == OPDOCK_TAG_BOOL && static_cast<uint64_t>(value.as.i64) > 1)) {
      return nullptr;
    }
  }
  if (first == nullptr) return nullptr;
  Target* target = function.known_target(first->device);
  if (target == nullptr) return nullptr;
  const uint32_t deciding = target->op->device_arg;
  if (deciding < num_args && args[deciding].tag == OPDOCK_TAG_TENSOR)
    first = args[deciding].as.tensor;
  return target->takes_quickly(first->dtype) ? target : nullptr;
}

}  // namespace opdock
