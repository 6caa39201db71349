// opdock/element_threads.hpp: how many threads the blocks of a large elementwise launch have, on
// the GPUs for which that was measured.
// SPDX-License-Identifier: Apache-2.0
#ifndef OPDOCK_ELEMENT_THREADS_HPP_
#define OPDOCK_ELEMENT_THREADS_HPP_

#include <cstdint>

#include "opdock/plugin.h"

namespace opdock {
namespace detail {

// Threads per block of a large launch, on NVIDIA's GPUs of one compute capability with at least
// `least_memory` bytes of memory; the size of the memory distinguishes HBM3e from HBM3.
struct ElementBlocks {
  uint32_t arch_major, arch_minor;
  uint64_t least_memory;
  int64_t threads;
};
constexpr ElementBlocks kElementBlocks[] = {{9, 0, uint64_t{120} << 30, 128}};  // H200

}  // namespace detail

// Returns the threads of a block on an NVIDIA GPU, or `usual` if none were measured for its kind.
inline int64_t element_threads(const opdock_device_facts& facts, int64_t usual) {
  for (const detail::ElementBlocks& kind : detail::kElementBlocks)
    if (facts.arch_major == kind.arch_major && facts.arch_minor == kind.arch_minor &&
        facts.memory_bytes >= kind.least_memory)
      return kind.threads;
  return usual;
}

}  // namespace opdock
#endif  // OPDOCK_ELEMENT_THREADS_HPP_
