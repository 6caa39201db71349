// Atomic operations on global and shared memory. Each returns the previous value. They are relaxed:
// they order no other accesses. To pass data to another block, write the data, call device_fence(),
// then do the atomic operation; the reader does the atomic operation, calls device_fence(), then
// reads the data.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/target.cuh"

namespace opdock {

// Orders memory accesses for all threads of the device: this thread's earlier writes, and the
// writes of other threads that it has seen, come before its later accesses.
OPDOCK_DEVICE void device_fence() {
#if defined(OPDOCK_SOFT)
  softgpu_fence();
#elif OPDOCK_HIP
  __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent");
#else
  __threadfence();
#endif
}

#if defined(OPDOCK_SOFT)
template <typename T>
OPDOCK_DEVICE T soft_atomic(softgpu::AtomicOp op, T* at, uint64_t value, uint64_t expected = 0) {
  return static_cast<T>(softgpu_atomic(op, at, sizeof(T), value, expected));
}
#define OPDOCK_ATOMIC(name, type, soft, hip, cuda)                                 \
  OPDOCK_DEVICE type name(type* at, type value) {                                  \
    return soft_atomic(softgpu::AtomicOp::soft, at, static_cast<uint64_t>(value)); \
  }
OPDOCK_DEVICE float atomic_add(float* at, float value) {
  return bits_float(soft_atomic(softgpu::AtomicOp::kAddFloat, reinterpret_cast<uint32_t*>(at),
                                float_bits(value)));
}
#elif OPDOCK_HIP
#define OPDOCK_ATOMIC(name, type, soft, hip, cuda)                     \
  OPDOCK_DEVICE type name(type* at, type value) {                      \
    return hip(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); \
  }
OPDOCK_ATOMIC(atomic_add, float, kAddFloat, __hip_atomic_fetch_add, atomicAdd)
#else
#define OPDOCK_ATOMIC(name, type, soft, hip, cuda) \
  OPDOCK_DEVICE type name(type* at, type value) {  \
    return cuda(at, value);                        \
  }
OPDOCK_ATOMIC(atomic_add, float, kAddFloat, __hip_atomic_fetch_add, atomicAdd)
#endif

OPDOCK_ATOMIC(atomic_add, int32_t, kAdd, __hip_atomic_fetch_add, atomicAdd)
OPDOCK_ATOMIC(atomic_add, uint32_t, kAdd, __hip_atomic_fetch_add, atomicAdd)
OPDOCK_ATOMIC(atomic_add, uint64_t, kAdd, __hip_atomic_fetch_add, atomicAdd)
OPDOCK_ATOMIC(atomic_max, int32_t, kMax, __hip_atomic_fetch_max, atomicMax)
OPDOCK_ATOMIC(atomic_min, int32_t, kMin, __hip_atomic_fetch_min, atomicMin)
OPDOCK_ATOMIC(atomic_exchange, int32_t, kExchange, __hip_atomic_exchange, atomicExch)
OPDOCK_ATOMIC(atomic_exchange, uint32_t, kExchange, __hip_atomic_exchange, atomicExch)
OPDOCK_ATOMIC(atomic_exchange, uint64_t, kExchange, __hip_atomic_exchange, atomicExch)
#undef OPDOCK_ATOMIC

// Writes `desired` if the value is `expected`. Returns the previous value. T: int32_t, uint32_t or
// uint64_t.
template <typename T>
OPDOCK_DEVICE T atomic_compare_and_swap(T* at, T expected, T desired) {
#if defined(OPDOCK_SOFT)
  return soft_atomic(softgpu::AtomicOp::kCompareAndSwap, at, static_cast<uint64_t>(desired),
                     static_cast<uint64_t>(expected));
#elif OPDOCK_HIP
  __hip_atomic_compare_exchange_strong(at, &expected, desired, __ATOMIC_RELAXED, __ATOMIC_RELAXED,
                                       __HIP_MEMORY_SCOPE_AGENT);
  return expected;
#else
  return atomicCAS(at, expected, desired);
#endif
}

}  // namespace opdock
