// Computes the random numbers of opdock_generator (opdock/plugin.h) from their positions:
// Philox4x32-10, from J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011. Kernels, and host code, which includes this file too, get the same bits.
// SPDX-License-Identifier: Apache-2.0
//
//   // in the host part
//   const opdock::RandomSource random = opdock::random_source(*call.generator());
//   // in a kernel, or on the CPU: the four numbers from number i of the call's range on
//   uint32_t number[4];
//   random_numbers(random.current_seed(), random.offset + i, number);
#pragma once

#include "opdock/host_device.cuh"

namespace opdock {

// Four words: a block of random numbers, or the counter that it is made from.
struct PhiloxWords {
  unsigned int word[4];
};

namespace detail {

OPDOCK_HOST_DEVICE constexpr PhiloxWords philox_round(const PhiloxWords& in, unsigned int key0,
                                                      unsigned int key1) {
  const unsigned int a = 0xd2511f53u, b = 0xcd9e8d57u;
  return {{high_product(b, in.word[2]) ^ in.word[1] ^ key0, b * in.word[2],
           high_product(a, in.word[0]) ^ in.word[3] ^ key1, a * in.word[0]}};
}

}  // namespace detail

// The generator itself: returns a block of random words for a counter of 128 bits and a key of 64,
// lowest words first.
OPDOCK_HOST_DEVICE constexpr PhiloxWords philox4x32_10(PhiloxWords counter, unsigned int key0,
                                                       unsigned int key1) {
  for (int round = 0; round < 10; ++round) {
    counter = detail::philox_round(counter, key0, key1);
    key0 += 0x9e3779b9u;
    key1 += 0xbb67ae85u;
  }
  return counter;
}

// Returns numbers 4 * block … 4 * block + 3 of the seed; block is below 2^62.
OPDOCK_HOST_DEVICE constexpr PhiloxWords random_block(unsigned long long seed,
                                                      unsigned long long block) {
  return philox4x32_10(
      {{static_cast<unsigned int>(block), static_cast<unsigned int>(block >> 32), 0u, 0u}},
      static_cast<unsigned int>(seed), static_cast<unsigned int>(seed >> 32));
}

// Sets to[k] to number first + k of the seed. Costs least if `first` is a multiple of 4, otherwise
// one more block. After number 2^64 - 1 comes number 0.
template <int Count>
OPDOCK_HOST_DEVICE constexpr void random_numbers(unsigned long long seed, unsigned long long first,
                                                 unsigned int (&to)[Count]) {
  static_assert(Count > 0 && Count % 4 == 0, "whole blocks");
  const unsigned int skip = static_cast<unsigned int>(first) & 3u;
  if (skip == 0) {  // the blocks are independent of each other
    for (int i = 0; i < Count; i += 4) {
      const PhiloxWords block = random_block(seed, (first + static_cast<unsigned int>(i)) >> 2);
      for (int k = 0; k < 4; ++k) to[i + k] = block.word[k];
    }
    return;
  }
  PhiloxWords block = random_block(seed, first >> 2);
  for (int i = 0; i < Count; i += 4) {
    const PhiloxWords next = random_block(seed, (first + static_cast<unsigned int>(i) + 4u) >> 2);
    // The words are chosen by conditions, not indexed by `skip`, so that a GPU keeps all of them in
    // registers.
    const unsigned int word[7] = {block.word[0], block.word[1], block.word[2], block.word[3],
                                  next.word[0],  next.word[1],  next.word[2]};
    for (int k = 0; k < 4; ++k)
      to[i + k] = skip == 1 ? word[k + 1] : skip == 2 ? word[k + 2] : word[k + 3];
    block = next;
  }
}

// The source from which a launch draws its numbers: a kernel parameter.
struct RandomSource {
  unsigned long long seed;
  unsigned long long offset;              // of the first number of the call's range
  const unsigned long long* device_seed;  // null: `seed` counts

  // Returns the seed that counts. If device_seed is set, it is read: call this only in device code,
  // once the kernel runs.
  OPDOCK_HOST_DEVICE unsigned long long current_seed() const {
    return device_seed != nullptr ? *device_seed : seed;
  }
};

// Called in host code, with *call.generator().
template <class Generator>
OPDOCK_HOST_DEVICE RandomSource random_source(const Generator& generator) {
  static_assert(sizeof *generator.device_seed == sizeof(unsigned long long), "64 bits");
  return {generator.seed, generator.offset,
          reinterpret_cast<const unsigned long long*>(generator.device_seed)};
}

}  // namespace opdock
