// All gradients of the norms in one pass over grad and x: blocks that take rows in turn, and keep
// the sums over their rows in registers, as each thread has the same columns of all of them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moments.cuh"

namespace layernorm::backward {

// The warps of a team share a row, and a block has as many rows at once as it has teams; or all
// blocks of a cluster are one team. Copies of rows to come are on their way meanwhile: each thread
// copies what it reads itself, so that it waits for nobody. A thread has Vectors vectors of a row,
// and copies of Stages rows.
template <class T, int Threads, int Vectors, int Stages, bool Ahead = true>
class RowLoop {
  static constexpr int kSize = vector_size<T>, kWarp = warp_width();
  static constexpr int kWarps = Threads / kWarp;  // of a block, at most
  static constexpr int kWarpElements = kWarp * Vectors * kSize;

 public:
  // Of each warp's part of a row: sums of deviations from a number near their mean, of their
  // squares, of g = grad * weight, of g times the deviations; and that number. Of two rows.
  using Scratch = float[2][5][kWarps];

  OPDOCK_DEVICE RowLoop(const LoopParams& p, Scratch& scratch)
      : p_(p), scratch_(scratch), lane_(lane_index()), warp_(thread_index() / kWarp) {
    const int blocks = cluster_blocks(), teams = block_threads() / (p.team_warps * kWarp);
    const int team = warp_ / p.team_warps;
    const int part = cluster_rank() * p.team_warps + warp_ - team * p.team_warps;
    ring_ =
        dynamic_shared<Bytes16>() + warp_ * (p.grad_sum ? 3 : 2) * Stages * Vectors * kWarp + lane_;
    before_ = team * p.team_warps;
    first_ = part * Vectors * kWarp + lane_;
    vectors_ = static_cast<int>(p.length) / kSize;
    const int elements = elements_of(part);
    share_ = elements > 0 ? 1.0f / static_cast<float>(elements) : 0.0f;
    OPDOCK_UNROLL
    for (int k = 0; k < Vectors; ++k) {
      Packed<T> weight;
      fill_piece(from_float<T>(1.0f), &weight);
      if (p.weight && has(k)) load_piece(static_cast<const T*>(p.weight) + column(k), &weight);
      to_floats(weight, weight_[k]);
    }
    const int64_t begin = block_index() / blocks * teams, step = grid_blocks() / blocks * teams;
    rows_ = rows_from(begin, step);
    mine_ = rows_from(begin + team, step);
    long long offset[4];
    p.rows.template locate<true>(begin + team, offset);
    x_ = static_cast<const T*>(p.x) + offset[0] + column(0);
    grad_ = static_cast<const T*>(p.grad) + offset[1] + column(0);
    out_ = static_cast<T*>(p.out) + offset[2] + column(0);
    more_ = static_cast<const T*>(p.grad_sum) + offset[3] + column(0);
    p.rows.template locate<true>(step, step_);
  }

  OPDOCK_DEVICE void run() {
    OPDOCK_UNROLL
    for (int i = 0; i < Stages - 1; ++i) fetch(i, i);
    if constexpr (Ahead) {
      copy_async_wait<Stages - 2>();
      add_up(0, 0, 0);
    }
    int stage = 0;
    for (int i = 0; i < rows_; ++i) {
      const int free = stage == 0 ? Stages - 1 : stage - 1;
      const int next = stage == Stages - 1 ? 0 : stage + 1;
      if constexpr (Ahead) {
        meet();
        fetch(i + Stages - 1, free);
        copy_async_wait<Stages - 2>();
        const Slopes slopes = gather(i & 1);
        add_up(i + 1, next, (i & 1) ^ 1);
        write(i, stage, slopes);
      } else {
        fetch(i + Stages - 1, free);
        copy_async_wait<Stages - 1>();
        add_up(i, stage, i & 1);
        meet();
        write(i, stage, gather(i & 1));
      }
      stage = next;
    }
    copy_async_wait<0>();
    finish();
  }

 private:
  // y is deviation * factor + rest; the gradient of x is g * factor + deviation * slope + constant.
  struct Slopes {
    Moments of;
    float slope, constant;
  };

  OPDOCK_DEVICE bool has(int k) const { return first_ + k * kWarp < vectors_; }
  OPDOCK_DEVICE int column(int k) const { return (first_ + k * kWarp) * kSize; }
  OPDOCK_DEVICE int elements_of(int warp) const {
    const int left = static_cast<int>(p_.length) - warp * kWarpElements;
    return left < 0 ? 0 : left < kWarpElements ? left : kWarpElements;
  }
  OPDOCK_DEVICE int rows_from(int64_t begin, int64_t step) const {
    return begin >= p_.rows.count ? 0 : static_cast<int>((p_.rows.count - 1 - begin) / step) + 1;
  }
  // Where the thread's first vector of x is; of grad is the next, of grad_sum behind all stages.
  OPDOCK_DEVICE Bytes16* slot(int stage) const { return ring_ + stage * 2 * Vectors * kWarp; }
  OPDOCK_DEVICE Bytes16* slot_of_more(int stage) const {
    return ring_ + (2 * Stages + stage) * Vectors * kWarp;
  }
  static OPDOCK_DEVICE Packed<T> held(const Bytes16* slot, int k) {
    return {load16(slot + k * kWarp)};
  }

  // Comes for one row after the other.
  OPDOCK_DEVICE void fetch(int i, int stage) {
    if (i < mine_) {
      Bytes16* const to = slot(stage);
      Bytes16* const more = slot_of_more(stage);
      OPDOCK_UNROLL
      for (int k = 0; k < Vectors; ++k) {
        if (!has(k)) continue;
        copy_async16(to + 2 * k * kWarp, x_ + k * kWarp * kSize);
        copy_async16(to + (2 * k + 1) * kWarp, grad_ + k * kWarp * kSize);
        if (p_.grad_sum) copy_async16(more + k * kWarp, more_ + k * kWarp * kSize);
      }
      x_ += step_[0];
      grad_ += step_[1];
      more_ += step_[3];
    }
    copy_async_commit();
  }

  // A number near the mean of the warp's elements; of rms norms, 0.
  OPDOCK_DEVICE float shift_of(const Packed<T> (&x)[Vectors]) const {
    if (!p_.centred) return 0.0f;
    if constexpr (sizeof(T) != sizeof(float)) return shuffle(to_float(x[0].get(0)), 0);
    float sum = 0.0f;
    OPDOCK_UNROLL
    for (int k = 0; k < Vectors; ++k) {
      float value[kSize];
      to_floats(x[k], value);
      OPDOCK_UNROLL
      for (float each : value) sum += each;
    }
    return warp_reduce<Sum>(sum) * share_;
  }

  OPDOCK_DEVICE void add_up(int i, int stage, int buffer) const {
    const bool here = i < mine_;
    Packed<T> x[Vectors], grad[Vectors];
    OPDOCK_UNROLL
    for (int k = 0; k < Vectors; ++k) {
      fill_piece(T{}, &x[k]);
      if (here && has(k)) {
        x[k] = held(slot(stage), 2 * k);
        grad[k] = held(slot(stage), 2 * k + 1);
      }
    }
    const float shift = shift_of(x);
    float sums[4] = {};
    OPDOCK_UNROLL
    for (int k = 0; k < Vectors; ++k) {
      if (!here || !has(k)) continue;
      float value[kSize], g[kSize];
      to_floats(x[k], value);
      to_floats(grad[k], g);
      OPDOCK_UNROLL
      for (int j = 0; j < kSize; ++j) {
        const float deviation = value[j] - shift;
        g[j] *= weight_[k][j];
        sums[0] += deviation;
        sums[1] = fma(deviation, deviation, sums[1]);
        sums[2] += g[j];
        sums[3] = fma(g[j], deviation, sums[3]);
      }
    }
    const float sum = warp_reduce4(sums, lane_);
    if (lane_ < 5) scratch_[buffer][lane_][warp_] = lane_ < 4 ? sum : shift;
  }

  // Until the sums of all that share a row are there.
  OPDOCK_DEVICE void meet() const {
    if (cluster_blocks() > 1)
      cluster_barrier();
    else if (p_.team_warps > 1)
      block_barrier();
    else
      warp_barrier();
  }

  OPDOCK_DEVICE Slopes gather(int buffer) const {
    const int blocks = cluster_blocks(), warp = lane_ % kWarps;
    float* const mine = scratch_[buffer][0] + before_;
    const float shift = *(blocks > 1 ? cluster_shared(mine + 4 * kWarps, 0) : mine + 4 * kWarps);
    float sums[4] = {};
    // The lanes take several blocks at once.
    for (int block = lane_ / kWarps; block < blocks; block += kWarp / kWarps) {
      if (warp >= p_.team_warps) break;
      const float* const of = (blocks > 1 ? cluster_shared(mine, block) : mine) + warp;
      const float elements = static_cast<float>(elements_of(block * p_.team_warps + warp));
      // Moved from the warp's number to that of all.
      const float by = of[4 * kWarps] - shift, sum = of[0], g = of[2 * kWarps];
      const float moved = fma(elements, by, sum);
      sums[0] += moved;
      sums[1] += fma(by, moved + sum, of[kWarps]);
      sums[2] += g;
      sums[3] += fma(by, g, of[3 * kWarps]);
    }
    const float sum = warp_reduce4(sums, lane_);
    const Moments of = moments_of(p_, {shuffle(sum, 0), shuffle(sum, 1)}, shift);
    const float of_grad = shuffle(sum, 2), of_product = shuffle(sum, 3);
    const float mean = p_.centred ? of_grad * p_.share : 0.0f;
    const float slope = -of.factor * fma(of_product, of.factor, of_grad * of.rest) * p_.share;
    return {of, slope * of.factor, fma(slope, of.rest, -of.factor * mean)};
  }

  OPDOCK_DEVICE void write(int i, int stage, const Slopes& by) {
    if (i >= mine_) return;
    OPDOCK_UNROLL
    for (int k = 0; k < Vectors; ++k) {
      if (!has(k)) continue;
      float value[kSize], grad[kSize];
      to_floats(held(slot(stage), 2 * k), value);
      to_floats(held(slot(stage), 2 * k + 1), grad);
      OPDOCK_UNROLL
      for (int j = 0; j < kSize; ++j) {
        const float deviation = value[j] - by.of.mean;
        value[j] = fma(deviation, by.slope, by.constant);
        value[j] = fma(grad[j] * weight_[k][j], by.of.factor, value[j]);
        sums_[0][k][j] = fma(fma(deviation, by.of.factor, by.of.rest), grad[j], sums_[0][k][j]);
        sums_[1][k][j] += grad[j];
      }
      if (p_.grad_sum) {
        float added[kSize];
        to_floats(held(slot_of_more(stage), k), added);
        OPDOCK_UNROLL
        for (int j = 0; j < kSize; ++j) value[j] += added[j];
      }
      Packed<T> piece;
      from_floats(value, &piece);
      store_piece(out_ + k * kWarp * kSize, piece);
    }
    out_ += step_[2];
  }

  // Writes the sums over all teams' rows.
  OPDOCK_DEVICE void finish() const {
    float* const shared = dynamic_shared<float>();
    const int in_team = p_.team_warps * kWarpElements, in_block = block_threads() * Vectors * kSize;
    const int left = cluster_rank() * in_team;  // columns that other blocks have
    const int64_t chunk = block_index() / cluster_blocks();
    OPDOCK_UNROLL
    for (int s = 0; s < 2; ++s) {
      if (!p_.sums[s]) continue;  // the same for all threads
      block_barrier();
      OPDOCK_UNROLL
      for (int k = 0; k < Vectors; ++k) {
        OPDOCK_UNROLL
        for (int j = 0; j < kSize; ++j)
          shared[before_ * kWarpElements + column(k) - left + j] = sums_[s][k][j];
      }
      block_barrier();
      for (int i = thread_index(); i < in_team && left + i < p_.length; i += block_threads()) {
        float sum = shared[i];
        OPDOCK_NO_UNROLL
        for (int t = i + in_team; t < in_block; t += in_team) sum += shared[t];
        p_.sums[s][chunk * p_.length + left + i] = sum;
      }
    }
    if (cluster_blocks() > 1) cluster_barrier();  // others may still read this one's memory
  }

  const LoopParams& p_;
  Scratch& scratch_;
  const int lane_, warp_;       // of this thread
  int before_;                  // warps of the teams before its own
  Bytes16* ring_;               // what this thread's first copies are
  int first_, vectors_;         // its first vector of a row; those of the row
  int rows_, mine_;             // that the block's first team takes, and this one
  float share_;                 // 1 / elements of the warp
  const T *x_, *grad_, *more_;  // of the next row that is copied
  T* out_;                      // of the next one that is written
  long long step_[4];           // from one row of a team to its next
  float weight_[Vectors][kSize];
  float sums_[2][Vectors][kSize] = {};
};

template <class T>
OPDOCK_KERNEL_BLOCKS(kLoopThreads, 1)
loop_rows(LoopParams p) {
  launch_turn();
  using Loop = RowLoop<T, kLoopThreads, loop_vectors(sizeof(T)), kLoopStages>;
  OPDOCK_SHARED(typename Loop::Scratch, scratch, 1);
  static_assert(sizeof(scratch) <= kLoopScratch, "as the host part takes it");
  Loop(p, scratch[0]).run();
}

}  // namespace layernorm::backward
