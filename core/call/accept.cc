// SPDX-License-Identifier: Apache-2.0
#include "call/accept.h"

#include "call/tensor_check.h"

namespace opdock {
namespace {

// A tensor with memory, dimensions, no negative strides, and far from any overflow. Its device is
// not looked at.
inline bool is_plain(const opdock_tensor& x) {
  const int64_t* const shape = x.shape;
  const int64_t* const strides = x.strides;
  const uint32_t ndim = static_cast<uint32_t>(x.ndim);
  const int64_t bytes = static_cast<int64_t>(element_bytes(x.dtype));
  if (ndim > OPDOCK_MAX_NDIM || x.data == nullptr || shape == nullptr || strides == nullptr ||
      bytes == 0) {
    return false;
  }
  int64_t count = bytes, span = bytes, sign = 0;
  for (uint32_t i = 0; i < ndim; ++i) {
    const int64_t size = shape[i], stride = strides[i];
    int64_t reach;
    sign |= size | stride;
    if (__builtin_mul_overflow(count, size, &count)) return false;
    if (__builtin_mul_overflow(size, stride, &reach)) return false;
    if (__builtin_add_overflow(span, reach, &span)) return false;
  }
  return sign >= 0 && !__builtin_mul_overflow(span, bytes, &span);
}

}  // namespace

Target* accept_arguments(const opdock_function& function, const opdock_value* args,
                         uint32_t num_args) {
  if (num_args != function.num_params() || args == nullptr) return nullptr;
  const uint32_t* tags = function.quick_tags();
  const opdock_tensor* first = nullptr;
  for (uint32_t i = 0; i < num_args; ++i) {
    const opdock_value& value = args[i];
    if (value.tag > OPDOCK_LIST || (tags[i] >> value.tag & 1) == 0) return nullptr;
    if (value.tag == OPDOCK_TENSOR) {
      const opdock_tensor* x = value.as.tensor;
      if (x == nullptr || (value.flags & OPDOCK_VALUE_NO_DATA) != 0 || !is_plain(*x)) {
        return nullptr;
      }
      if (first == nullptr) {
        first = x;
      } else if (x->device.type != first->device.type || x->device.index != first->device.index) {
        return nullptr;
      }
    } else if (value.tag == OPDOCK_BOOL && static_cast<uint64_t>(value.as.i64) > 1) {
      return nullptr;
    }
  }
  if (first == nullptr) return nullptr;
  Target* target = function.known_target(first->device);
  if (target == nullptr) return nullptr;
  const uint32_t deciding = target->op->device_arg;
  if (deciding < num_args && args[deciding].tag == OPDOCK_TENSOR) first = args[deciding].as.tensor;
  return target->takes(first->dtype) ? target : nullptr;
}

}  // namespace opdock
