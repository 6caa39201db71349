// All gradients of the norms in one pass over grad and x: blocks, or clusters of blocks, that take
// rows in turn, and keep the sums over their rows in registers, as each thread has the same columns
// of all of them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moments.cuh"
#include "opdock/cluster_gather.cuh"

namespace layernorm::backward {

// The warps of a team share a row, and a block has as many rows at once as it has teams. Copies of
// rows to come are on their way meanwhile: each thread copies what it reads itself, so that it
// waits for nobody. A thread has Vectors vectors of a row, and copies of Stages rows. In a cluster
// each block is one team and has a slice of the cluster's row; its warps tell all the others what
// they have.
template <class T, int Threads, int Vectors, int Stages, bool Clusters>
class RowLoop {
  static constexpr int kSize = vector_size<T>, kWarp = warp_width();
  static constexpr int kWarps = Threads / kWarp;  // of a block, at most
  // In shared memory, before the copies, of each warp's part of a row, of two rows in turn: sums of
  // deviations from a number near their mean, of their squares, of g = grad * weight, of g times
  // the deviations; and that number. In a cluster the relay's memory is there.
  static constexpr int kSums = 8;
  static constexpr int kWeights = sizeof(float) / sizeof(T);  // bytes, relative to those of a row
  static_assert(2 * kWarps * kSums * sizeof(float) <= kLoopScratch, "as the host part takes it");
  static constexpr int kWarpElements = kWarp * Vectors * kSize;

 public:
  OPDOCK_DEVICE explicit RowLoop(const LoopParams& p)
      : p_(p),
        lane_(lane_index()),
        warp_(thread_index() / kWarp),
        relay_(dynamic_shared<Bytes16>()) {
    const int teams = block_threads() / (p.team_warps * kWarp), team = warp_ / p.team_warps;
    before_ = team * p.team_warps;
    ring_ =
        scratch() + warp_ * ((p.grad_sum ? 3 : 2) * Stages + kWeights) * Vectors * kWarp + lane_;
    const int part = warp_ - before_, first = part * Vectors * kWarp + lane_;
    left_ = length() / kSize - first;
    const int elements = elements_of(length(), part), other = lane_ % kWarps;
    share_ = share_of(elements < kWarp * kSize ? elements : kWarp * kSize);
    if (other < p.team_warps)
      elements_ = static_cast<float>(elements_of(Clusters ? p.slice : length(), other));
    int64_t begin = block_index() * teams, step = grid_blocks() * teams;
    if constexpr (Clusters) {
      if (thread_index() == 0) relay_.open();
      cluster_opening();
      begin = number();
      step = static_cast<uint32_t>(grid_blocks()) / static_cast<uint32_t>(cluster_blocks());
      warp_share_ = share_of(elements);
      if (other < p.team_warps)
        last_elements_ = static_cast<float>(elements_of(length_of(cluster_blocks() - 1), other));
    }
    if (!has(Vectors - 1)) clear_absent();
    rows_ = rows_from(begin, step);
    mine_ = rows_from(begin + team, step);
    step_ = static_cast<uint32_t>(step * sizeof(T));
    long long offset[4];
    p.rows.template locate<true>(begin + team, offset);
    const int column = before() + first * kSize;
    x_ = static_cast<const T*>(p.x) + offset[0] + column;
    grad_ = static_cast<const T*>(p.grad) + offset[1] + column;
    out_ = static_cast<T*>(p.out) + offset[2] + column;
    more_ = static_cast<const T*>(p.grad_sum) + offset[3] + column;
  }

  OPDOCK_DEVICE void run() {
    OPDOCK_UNROLL
    for (int i = 0; i < Stages; ++i) {
      fetch(i, i);
      fetch_more(i, i);
    }
    keep_weight();
    if constexpr (Clusters) cluster_opened();
    int stage = 0;
    for (int i = 0; i < rows_; ++i) {
      copy_async_wait<Stages - 1>();
      const bool here = i < mine_;  // the same for the team
      Part part;
      if (here) part = add_up(stage, i & 1);
      // Of x and grad all is in registers now: copies take their place while the team meets.
      fetch(i + Stages, stage);
      if constexpr (Clusters) {
        write(stage, gather_cluster(part.shift), part);
      } else {
        meet();
        if (here) write(stage, gather(i & 1, part.shift), part);
      }
      fetch_more(i + Stages, stage);
      stage = stage == Stages - 1 ? 0 : stage + 1;
    }
    copy_async_wait<0>();
    finish();
  }

 private:
  // What a thread has of a row: deviations from the number near its warp's mean, and gradients.
  struct Part {
    float shift;
    float deviation[Vectors][kSize], grad[Vectors][kSize], g[Vectors][kSize];
  };
  // y is deviation * factor + rest; the gradient of x is g * factor + deviation * slope + constant.
  struct Slopes {
    float factor, rest, slope, constant;
  };

  OPDOCK_DEVICE bool has(int k) const { return k * kWarp < left_; }
  // What a block of the cluster has of a row, and where that begins.
  OPDOCK_DEVICE int length_of(int rank) const {
    const int left = static_cast<int>(p_.length) - rank * p_.slice;
    return left < p_.slice ? left : p_.slice;
  }
  OPDOCK_DEVICE int length() const {
    return Clusters ? length_of(cluster_rank()) : static_cast<int>(p_.length);
  }
  OPDOCK_DEVICE int before() const { return Clusters ? cluster_rank() * p_.slice : 0; }
  // Of the block, or of its cluster.
  OPDOCK_DEVICE int64_t number() const { return Clusters ? cluster_number() : block_index(); }
  // A warp's part of so many elements; of a cluster's last block it may be none.
  static OPDOCK_DEVICE int elements_of(int length, int warp) {
    const int left = length - warp * kWarpElements;
    return left < 0 ? 0 : left < kWarpElements ? left : kWarpElements;
  }
  static OPDOCK_DEVICE float share_of(int elements) {
    return elements == 0 ? 0.0f : 1.0f / static_cast<float>(elements);
  }
  // Vectors of shared memory before the copies.
  static OPDOCK_DEVICE int scratch() {
    return (Clusters ? cluster_relay_bytes(cluster_blocks(), kWarps) : kLoopScratch) / 16;
  }
  OPDOCK_DEVICE int rows_from(int64_t begin, int64_t step) const {
    return begin >= p_.rows.count ? 0 : static_cast<int>((p_.rows.count - 1 - begin) / step) + 1;
  }
  // The sums of a team's warp.
  OPDOCK_DEVICE float* sums_of(int buffer, int warp) const {
    return dynamic_shared<float>() + (buffer * kWarps + before_ + warp) * kSums;
  }
  // Where the thread's first vector of x is; of grad is the next, of grad_sum behind all stages.
  OPDOCK_DEVICE Bytes16* slot(int stage) const {
    return weights() + (stage * 2 + kWeights) * Vectors * kWarp;
  }
  OPDOCK_DEVICE Bytes16* slot_of_more(int stage) const {
    return slot(Stages) + stage * Vectors * kWarp;
  }
  // Before all of them its weights, as floats.
  OPDOCK_DEVICE Bytes16* weights() const { return dynamic_shared<Bytes16>() + ring_; }
  // To the team's next row.
  OPDOCK_DEVICE void advance(int tensor, const T** at) const {
    *at = reinterpret_cast<const T*>(reinterpret_cast<const char*>(*at) +
                                     static_cast<uint64_t>(p_.rows.stride[tensor][0]) * step_);
  }
  OPDOCK_DEVICE void advance(int tensor, T** at) const {
    *at = reinterpret_cast<T*>(reinterpret_cast<char*>(*at) +
                               static_cast<uint64_t>(p_.rows.stride[tensor][0]) * step_);
  }

  OPDOCK_DEVICE void keep_weight() const {
    const int column = before() + (length() / kSize - left_) * kSize;
    OPDOCK_UNROLL
    for (int k = 0; k < Vectors; ++k) {
      Packed<T> piece;
      fill_piece(from_float<T>(1.0f), &piece);
      if (p_.weight && has(k))
        load_piece(static_cast<const T*>(p_.weight) + column + k * kWarp * kSize, &piece);
      float weight[kSize];
      to_floats(piece, weight);
      OPDOCK_UNROLL
      for (int j = 0; j < kSize; j += 4) {
        Packed<float> four;
        OPDOCK_UNROLL
        for (int i = 0; i < 4; ++i) four.set(i, weight[j + i]);
        store16(weights() + (k * kSize + j) / 4 * kWarp, four.bytes);
      }
    }
  }

  // Vectors that are not there are never copied: they stay 0.
  OPDOCK_DEVICE void clear_absent() const {
    OPDOCK_NO_UNROLL
    for (int stage = 0; stage < Stages; ++stage) {
      OPDOCK_UNROLL
      for (int k = 0; k < Vectors; ++k) {
        if (has(k)) continue;
        store16(slot(stage) + 2 * k * kWarp, Bytes16{});
        store16(slot(stage) + (2 * k + 1) * kWarp, Bytes16{});
        if (p_.grad_sum) store16(slot_of_more(stage) + k * kWarp, Bytes16{});
      }
    }
  }

  // These come for one row after the other.
  OPDOCK_DEVICE void fetch(int i, int stage) {
    if (i >= mine_) return;
    Bytes16* const to = slot(stage);
    OPDOCK_UNROLL
    for (int k = 0; k < Vectors; ++k) {
      if (!has(k)) continue;
      copy_async16(to + 2 * k * kWarp, x_ + k * kWarp * kSize);
      copy_async16(to + (2 * k + 1) * kWarp, grad_ + k * kWarp * kSize);
    }
    advance(0, &x_);
    advance(1, &grad_);
  }
  // And ends the row's group.
  OPDOCK_DEVICE void fetch_more(int i, int stage) {
    if (p_.grad_sum && i < mine_) {
      OPDOCK_UNROLL
      for (int k = 0; k < Vectors; ++k)
        if (has(k)) copy_async16(slot_of_more(stage) + k * kWarp, more_ + k * kWarp * kSize);
      advance(3, &more_);
    }
    copy_async_commit();
  }

  // A number near the mean of the warp's elements; of rms norms, 0. For elements of 32 bits it is
  // the mean of a quarter of them at least, which leaves of a sum of squares less than four times
  // that about the mean.
  OPDOCK_DEVICE float shift_of(const float (&first)[kSize]) const {
    if constexpr (sizeof(T) != sizeof(float)) {
      const float any = shuffle(first[0], 0);
      return p_.centred ? any : 0.0f;
    }
    if (!p_.centred) return 0.0f;
    float sum = 0.0f;
    OPDOCK_UNROLL
    for (float each : first) sum += each;
    return warp_reduce<Sum>(sum) * share_;
  }

  OPDOCK_DEVICE Part add_up(int stage, int buffer) const {
    Packed<T> x[Vectors], grad[Vectors];
    OPDOCK_UNROLL
    for (int k = 0; k < Vectors; ++k) {
      x[k] = {load16(slot(stage) + 2 * k * kWarp)};
      grad[k] = {load16(slot(stage) + (2 * k + 1) * kWarp)};
    }
    Part part;
    OPDOCK_UNROLL
    for (int k = 0; k < Vectors; ++k) {
      to_floats(x[k], part.deviation[k]);
      to_floats(grad[k], part.grad[k]);
    }
    part.shift = shift_of(part.deviation[0]);
    OPDOCK_UNROLL
    for (auto& vector : part.deviation) {
      OPDOCK_UNROLL
      for (float& each : vector) each -= part.shift;
    }
    // Most threads have all: one branch for all vectors spares each a choice.
    if (!has(Vectors - 1)) {
      OPDOCK_UNROLL
      for (int k = 0; k < Vectors; ++k) {
        OPDOCK_UNROLL
        for (float& each : part.deviation[k])
          if (!has(k)) each = 0.0f;
      }
    }
    float sums[4] = {};
    OPDOCK_UNROLL
    for (int k = 0; k < Vectors; ++k) {
      Packed<float> weight;
      OPDOCK_UNROLL
      for (int j = 0; j < kSize; ++j) {
        if (j % 4 == 0) weight = {load16(weights() + (k * kSize + j) / 4 * kWarp)};
        const float deviation = part.deviation[k][j], g = part.grad[k][j] * weight.get(j % 4);
        part.g[k][j] = g;
        sums[0] += deviation;
        sums[1] = fma(deviation, deviation, sums[1]);
        sums[2] += g;
        sums[3] = fma(g, deviation, sums[3]);
      }
    }
    const float sum = warp_reduce4(sums, lane_);
    if constexpr (Clusters)
      give({shuffle(sum, 0), shuffle(sum, 1), shuffle(sum, 2), shuffle(sum, 3)}, part.shift);
    else if (lane_ < 5)
      sums_of(buffer, warp_ - before_)[lane_] = lane_ < 4 ? sum : part.shift;
    return part;
  }

  // To the cluster's warps: the mean (0 of rms norms), and the sums about it, which are four
  // numbers without the one that the deviations are from.
  OPDOCK_DEVICE void give(const float (&sums)[4], float shift) const {
    const float left = p_.centred ? sums[0] * warp_share_ : 0.0f;
    Packed<float> all;
    all.set(0, shift + left);
    all.set(1, fma(-left, sums[0], sums[1]));
    all.set(2, sums[2]);
    all.set(3, fma(-left, sums[2], sums[3]));
    relay_.give(all.bytes);
  }

  // Until the sums of all that share a row are there.
  OPDOCK_DEVICE void meet() const {
    if (p_.team_warps > 1)
      block_barrier();
    else
      warp_barrier();
  }

  // mine: the number that the warp's deviations are from.
  OPDOCK_DEVICE Slopes gather(int buffer, float mine) const {
    const float shift = sums_of(buffer, 0)[4];
    float sums[4] = {};
    if (const int warp = lane_ % kWarps; warp < p_.team_warps) {
      const Packed<float> of = {load16(sums_of(buffer, warp))};
      // Moved from the warp's number to that of all.
      const float by = sums_of(buffer, warp)[4] - shift;
      sums[0] = fma(elements_, by, of.get(0));
      sums[1] = fma(by, sums[0] + of.get(0), of.get(1));
      sums[2] = of.get(2);
      sums[3] = fma(by, of.get(2), of.get(3));
    }
    return slopes(warp_reduce4<kWarps>(sums, lane_), shift, mine);
  }
  // The same from what all warps of the cluster have.
  OPDOCK_DEVICE Slopes gather_cluster(float mine) {
    const Bytes16* const given = relay_.take();
    const float shift = Packed<float>{load16(given)}.get(0);
    const int last = (cluster_blocks() - 1) * kWarps;
    float sums[4] = {};
    if (lane_ % kWarps < p_.team_warps) {
      OPDOCK_NO_UNROLL
      for (int i = lane_; i < last + kWarps; i += kWarp) {
        const Packed<float> of = {load16(given + i)};
        const float by = of.get(0) - shift, sum = by * (i < last ? elements_ : last_elements_);
        sums[0] += sum;
        sums[1] += fma(by, sum, of.get(1));
        sums[2] += of.get(2);
        sums[3] += fma(by, of.get(2), of.get(3));
      }
    }
    return slopes(warp_reduce4(sums, lane_), shift, mine);
  }
  // sum: of all, by lanes as warp_reduce4() leaves them.
  OPDOCK_DEVICE Slopes slopes(float sum, float shift, float mine) const {
    const Moments of = moments_of(p_, {shuffle(sum, 0), shuffle(sum, 1)}, shift);
    const float of_grad = shuffle(sum, 2), of_product = shuffle(sum, 3);
    const float mean = p_.centred ? of_grad * p_.share : 0.0f;
    const float slope = -of.factor * fma(of_product, of.factor, of_grad * of.rest) * p_.share;
    const float rest = fma(mine - shift, of.factor, of.rest);
    return {of.factor, rest, slope * of.factor, fma(slope, rest, -of.factor * mean)};
  }

  OPDOCK_DEVICE void write(int stage, const Slopes& by, const Part& part) {
    OPDOCK_UNROLL
    for (int k = 0; k < Vectors; ++k) {
      float value[kSize];
      OPDOCK_UNROLL
      for (int j = 0; j < kSize; ++j) {
        const float deviation = part.deviation[k][j], grad = part.grad[k][j];
        value[j] = fma(part.g[k][j], by.factor, fma(deviation, by.slope, by.constant));
        sums_[0][k][j] = fma(fma(deviation, by.factor, by.rest), grad, sums_[0][k][j]);
        sums_[1][k][j] += grad;
      }
      if (p_.grad_sum) {
        float added[kSize];
        to_floats(Packed<T>{load16(slot_of_more(stage) + k * kWarp)}, added);
        OPDOCK_UNROLL
        for (int j = 0; j < kSize; ++j) value[j] += added[j];
      }
      Packed<T> piece;
      from_floats(value, &piece);
      if (has(k)) store_piece(out_ + k * kWarp * kSize, piece);
    }
    advance(2, &out_);
  }

  // Writes the sums over all teams' rows.
  OPDOCK_DEVICE void finish() const {
    float* const shared = dynamic_shared<float>() + 4 * scratch();
    const int in_team = p_.team_warps * kWarpElements, in_block = block_threads() * Vectors * kSize;
    OPDOCK_UNROLL
    for (int s = 0; s < 2; ++s) {
      if (!p_.sums[s]) continue;  // the same for all threads
      block_barrier();
      OPDOCK_UNROLL
      for (int k = 0; k < Vectors; ++k) {
        OPDOCK_UNROLL
        for (int j = 0; j < kSize; ++j)
          shared[warp_ * kWarpElements + (k * kWarp + lane_) * kSize + j] = sums_[s][k][j];
      }
      block_barrier();
      for (int i = thread_index(); i < length(); i += block_threads()) {
        float sum = shared[i];
        OPDOCK_NO_UNROLL
        for (int t = i + in_team; t < in_block; t += in_team) sum += shared[t];
        p_.sums[s][number() * p_.length + before() + i] = sum;
      }
    }
  }

  const LoopParams& p_;
  const int lane_, warp_;       // of this thread
  int before_;                  // warps of the teams before its own
  int ring_;                    // where its first copies are, behind the sums
  int left_;                    // vectors of the row from its first one on
  int rows_, mine_;             // that the block's first team takes, and this one
  uint32_t step_;               // from one row of a team to its next, times an element's bytes
  float share_;                 // 1 / elements in the first vectors of the warp
  float elements_ = 0.0f;       // of the team's warp that has the lane's number
  float last_elements_ = 0.0f;  // the same of the cluster's last block
  float warp_share_ = 0.0f;     // in a cluster, 1 / elements of the warp
  ClusterRelay<kWarps> relay_;
  const T *x_, *grad_, *more_;  // of the next row that is copied
  T* out_;                      // of the next one that is written
  float sums_[2][Vectors][kSize] = {};
};

template <class T, bool Clusters>
using Loop = RowLoop<T, kLoopThreads, kLoopElements / vector_size<T>,
                     loop_stages(sizeof(T), Clusters), Clusters>;

template <class T>
OPDOCK_KERNEL_BLOCKS(kLoopThreads, 1)
loop_rows(LoopParams p) {
  launch_turn();
  Loop<T, false>(p).run();
}
// The same by clusters, of rows that one block has no room for.
template <class T>
OPDOCK_KERNEL_BLOCKS(kLoopThreads, 1)
loop_slices(LoopParams p) {
  launch_turn();
  Loop<T, true>(p).run();
}

}  // namespace layernorm::backward
