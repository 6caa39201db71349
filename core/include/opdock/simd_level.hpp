// opdock/simd_level.hpp: compiles a CPU kernel several times and chooses the best version at run
// time.
// SPDX-License-Identifier: Apache-2.0
//
// A file named in a plugin's simd_sources is compiled once per x86-64 level of the psABI, v1 to v4
// (on other processors once, as `base`), with OPDOCK_SIMD_LEVEL defined as that name. Its functions
// are in a namespace of that name:
//
//   OPDOCK_SIMD_DECLARE(void add(const float* x, float* y, int64_t n))        in a header
//   namespace OPDOCK_SIMD_LEVEL { void add(…) { … } }                         in the kernel file
//   static const auto best = OPDOCK_SIMD_CHOOSE(add);                         in the plugin
//
// OPDOCK_CPU_LEVEL=1…4 in the environment lowers the choice, to compare or to test. A build on
// demand has only the level of its machine, with OPDOCK_SIMD_ONLY defined as its name: nothing is
// chosen at run time.
#ifndef OPDOCK_SIMD_LEVEL_HPP_
#define OPDOCK_SIMD_LEVEL_HPP_

#if defined(OPDOCK_SIMD_ONLY)

#define OPDOCK_SIMD_DECLARE(declaration) \
  namespace OPDOCK_SIMD_ONLY {           \
  declaration;                           \
  }
#define OPDOCK_SIMD_CHOOSE(function) &OPDOCK_SIMD_ONLY::function

#elif defined(__x86_64__)
#include <cpuid.h>
#include <stdlib.h>

#define OPDOCK_SIMD_DECLARE(declaration) \
  namespace v1 {                         \
  declaration;                           \
  }                                      \
  namespace v2 {                         \
  declaration;                           \
  }                                      \
  namespace v3 {                         \
  declaration;                           \
  }                                      \
  namespace v4 {                         \
  declaration;                           \
  }
#define OPDOCK_SIMD_CHOOSE(function)            \
  ::opdock::simd_level() >= 4   ? &v4::function \
  : ::opdock::simd_level() == 3 ? &v3::function \
  : ::opdock::simd_level() == 2 ? &v2::function \
                                : &v1::function

namespace opdock {

namespace detail {
inline int probe_simd_level() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  __builtin_cpu_init();
  int level = 1;
  if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt")) level = 2;
  // __builtin_cpu_supports also checks which registers the operating system saves.
  bool v3 = level == 2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
            __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  v3 = v3 && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) && (c & bit_MOVBE);
  v3 = v3 && __get_cpuid(0x80000001u, &a, &b, &c, &d) && (c & bit_ABM);
  if (v3) level = 3;
  if (v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    level = 4;
  const char* limit = secure_getenv("OPDOCK_CPU_LEVEL");
  if (limit && limit[0] >= '1' && limit[0] <= '4' && !limit[1] && limit[0] - '0' < level)
    level = limit[0] - '0';
  return level;
}
}  // namespace detail

// Returns the psABI's x86-64 level of this processor, 1 to 4, at most what OPDOCK_CPU_LEVEL allows.
inline int simd_level() {
  static const int level = detail::probe_simd_level();
  return level;
}

}  // namespace opdock

#else

#define OPDOCK_SIMD_DECLARE(declaration) \
  namespace base {                       \
  declaration;                           \
  }
#define OPDOCK_SIMD_CHOOSE(function) &base::function

#endif
#endif  // OPDOCK_SIMD_LEVEL_HPP_
