// The functions that the vocabulary (opdock/target_soft.cuh) calls, and the table of a library's
// kernels. Part of each compiled kernel library; the functions are defined in device_calls.cc.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "softgpu/module.h"

extern "C" {
#pragma GCC visibility push(hidden)
void softgpu_block_barrier();
void softgpu_cluster_barrier();
unsigned long long softgpu_warp(softgpu::WarpOp op, unsigned long long value, int argument);
void* softgpu_shared(const void* site, softgpu::Word bytes, softgpu::Word alignment);
void* softgpu_dynamic_shared();
void* softgpu_cluster_shared(const void* address, unsigned rank);
unsigned long long softgpu_atomic(softgpu::AtomicOp op, void* address, unsigned bytes,
                                  unsigned long long value, unsigned long long expected);
// Moves 16 bytes by one instruction.
void softgpu_move16(void* to, const void* from);
void softgpu_fence();
void softgpu_copy_async(void* to, const void* from);
void softgpu_copy_commit();
void softgpu_copy_wait(unsigned left);
void softgpu_trap();
void softgpu_launch_wait();
#pragma GCC visibility pop
}

namespace softgpu {

template <int... Is>
struct Indices {};
template <int N, int... Is>
struct MakeIndices : MakeIndices<N - 1, N - 1, Is...> {};
template <int... Is>
struct MakeIndices<0, Is...> {
  using type = Indices<Is...>;
};

template <class T>
struct KindOf {
  static constexpr ParamKind value = ParamKind::kOther;
};
template <class T>
struct KindOf<T*> {
  static constexpr ParamKind value = ParamKind::kPointer;
};
template <class T>
struct KindOf<const T*> {
  static constexpr ParamKind value = ParamKind::kConst;
};
template <class T>
struct KindOf<T**> {
  static constexpr ParamKind value = ParamKind::kPointers;
};
template <class T>
struct KindOf<T* const*> {
  static constexpr ParamKind value = ParamKind::kPointers;
};

template <class F, F function>
struct KernelOf;
template <class... Params, void (*function)(Params...)>
struct KernelOf<void (*)(Params...), function> {
  static constexpr unsigned sizes[sizeof...(Params) + 1] = {sizeof(Params)..., 0};
  static constexpr ParamKind kinds[sizeof...(Params) + 1] = {KindOf<Params>::value...};
  // Not instrumented: the engine, not the kernel, reads the arguments of the launch.
  template <int... Is>
  __attribute__((noinline, no_sanitize("thread"))) static void call(void* const* params,
                                                                    Indices<Is...>) {
    (void)params;
    function(*static_cast<Params*>(params[Is])...);
  }
  static void run(void* const* params) {
    call(params, typename MakeIndices<sizeof...(Params)>::type());
  }
  static const void* symbol() { return reinterpret_cast<const void*>(function); }
  static constexpr KernelEntry entry(const char* expression) {
    return {expression, symbol, run, sizes, kinds, sizeof...(Params)};
  }
};

}  // namespace softgpu
