// Weights that become 0 at random (dropout): policies of the kernels that have them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "rows.cuh"

namespace attention {

// All weights are kept.
struct KeptWeights {
  static constexpr bool kDrops = false;
  OPDOCK_DEVICE explicit KeptWeights(const Params&) {}
};

struct DroppedWeights {
  static constexpr bool kDrops = true;
  unsigned long long seed, first;

  OPDOCK_DEVICE explicit DroppedWeights(const Params& p)
      : seed(p.drop.seed()), first(p.drop.first_block()) {}

  // Leaves the seed and the first block for the gradients; any block of the grid may call this.
  OPDOCK_DEVICE void leave(const Params& p) const {
    if (!p.drop.new_state || thread_index() != 0) return;
    if (block_index() != 0 || block_index_y() != 0 || block_index_z() != 0) return;
    p.drop.new_state[0] = static_cast<long long>(seed);
    p.drop.new_state[1] = static_cast<long long>(first);
  }
  // Returns the number of a row's first block.
  OPDOCK_DEVICE unsigned long long row(const Params& p, const Block& block, const Row& of) const {
    const int64_t number =
        (static_cast<int64_t>(block.batch) * p.heads + of.head) * p.queries + of.query;
    return first + static_cast<unsigned long long>(number * p.drop.row_blocks);
  }
  // Returns the numbers of the block that decides about a key.
  OPDOCK_DEVICE PhiloxWords words(unsigned long long row, int key) const {
    return random_block(seed, row + static_cast<unsigned long long>(Dropout::block_of(key)));
  }
  OPDOCK_DEVICE bool keeps(const Params& p, unsigned long long row, int key) const {
    const PhiloxWords words = this->words(row, key);
    const int word = Dropout::word_of(key);
    return p.drop.keeps(word == 0   ? words.word[0]
                        : word == 1 ? words.word[1]
                        : word == 2 ? words.word[2]
                                    : words.word[3]);
  }
  // Multiplies what belongs to sixteen keys from `key` on, a multiple of sixteen, and to a lane's
  // row by `factor`, or by 0 where the weight is dropped. low, high: of the lane's two keys of each
  // eight.
  OPDOCK_DEVICE void drop(const Params& p, unsigned long long row, int key, int t, float factor,
                          float* low, float* high) const {
    const PhiloxWords words = this->words(row, key + 2 * t);
    low[0] = p.drop.keeps(words.word[0]) ? low[0] * factor : 0.0f;
    low[1] = p.drop.keeps(words.word[1]) ? low[1] * factor : 0.0f;
    high[0] = p.drop.keeps(words.word[2]) ? high[0] * factor : 0.0f;
    high[1] = p.drop.keeps(words.word[3]) ? high[1] * factor : 0.0f;
  }
};

}  // namespace attention
