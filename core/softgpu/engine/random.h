// Random numbers for the order of blocks and threads: the same on every machine for the same seed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace softgpu {

// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
class Random {
 public:
  explicit Random(uint64_t seed = 0) : state_(seed) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  uint32_t below(uint32_t limit) { return static_cast<uint32_t>(((next() >> 32) * limit) >> 32); }
  template <typename T>
  void shuffle(T* items, size_t count) {
    for (size_t i = count; i > 1; --i)
      std::swap(items[i - 1], items[below(static_cast<uint32_t>(i))]);
  }

 private:
  uint64_t state_;
};

// Combines two seeds into one.
inline uint64_t mix(uint64_t a, uint64_t b) {
  Random random(a ^ (b * 0xd6e8feb86659fd93u));
  return random.next();
}

}  // namespace softgpu
